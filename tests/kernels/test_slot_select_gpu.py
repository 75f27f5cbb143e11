"""slot_select on a GPU: the host twin's bits, eager, in plans and in a captured graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernel_checks import differing
from select_cases import CASES, SelectCase, projections, select_outputs
from test_slot_select import arguments, for_core, plan_of, run

from sdm_runtime import StepChain, _core

LARGE = {
    "large m": SelectCase(tokens=4096, heads=16),
    "large m ties": SelectCase(tokens=2000, heads=3, values="ties"),
    "large l": SelectCase(dims=(256, 256), k=64, q=64, tokens=1500, values="ties"),
    "large s f32": SelectCase(dims=(64, 64), k=16, q=16, tokens=3000, dtype=torch.float32),
    "large many": SelectCase(dims=(256, 256), k=256, q=256, tokens=200, values="ties"),
    "one token": SelectCase(tokens=1, heads=16),
}
ALL = CASES | LARGE


def on_gpu(case: SelectCase, given: dict[str, torch.Tensor], **changed: Any) -> dict:
    outputs = select_outputs(case, "cuda")
    made = arguments(case, {k: x.cuda() for k, x in given.items()}, outputs) | changed
    _core.slot_select(*for_core(made | {"stream": torch.cuda.current_stream().cuda_stream}))
    return {k: x.cpu() for k, x in outputs.items()}


@pytest.mark.parametrize("name", ALL)
def test_the_twins_bits(name: str) -> None:
    case = ALL[name]
    given = projections(case)
    assert differing(on_gpu(case, given), run(case, given)) == []


@pytest.mark.parametrize("name", ["m", "m view", "l ties", "s f32", "six", "many"])
@pytest.mark.parametrize("pdl", [False, True])
def test_plans_and_captured_launches(name: str, pdl: bool) -> None:
    case = ALL[name]
    given = projections(case)
    wanted = run(case, given)
    moved = {k: x.cuda() for k, x in given.items()}
    outputs = select_outputs(case, "cuda")
    plan, _ = plan_of(case, moved, outputs, pdl=pdl)
    StepChain([plan], 1).run()
    assert differing({k: x.cpu() for k, x in outputs.items()}, wanted) == []
    made = arguments(case, moved, outputs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _core.slot_select(*for_core(made | {"stream": torch.cuda.current_stream().cuda_stream}))
    for tensor in outputs.values():
        tensor.zero_()
    graph.replay()
    assert differing({k: x.cpu() for k, x in outputs.items()}, wanted) == []


def test_the_comparison_can_fail() -> None:
    case = CASES["m"]
    given = projections(case)
    other = on_gpu(case, given, key_scale=2.0)
    assert differing(other, run(case, given)) == ["key_weights"]
