"""slot_select_grad on a GPU: the host twin's bits, eager, in plans and in a captured graph."""

from __future__ import annotations

import pytest
import torch
from kernel_checks import differing
from select_cases import CASES, SelectCase, grad_inputs, grad_outputs
from test_slot_select import for_core
from test_slot_select_grad import arguments, plan_of, run

from sdm_runtime import StepChain, _core

LARGE = {
    "large m": SelectCase(tokens=4096, heads=16),
    "large l": SelectCase(dims=(256, 256), k=64, q=64, tokens=1500, key_activation="l2"),
    "large s f32": SelectCase(dims=(64, 64), k=16, q=16, tokens=3001, dtype=torch.float32),
    "large many": SelectCase(dims=(256, 256), k=256, q=256, tokens=200),
}
ALL = CASES | LARGE


def on_cpu(tensors: dict) -> dict:
    return {k: x.cpu() for k, x in tensors.items()}


@pytest.mark.parametrize("name", ALL)
def test_the_twins_bits(name: str) -> None:
    case = ALL[name]
    given, outputs = grad_inputs(case), grad_outputs(case, "cuda")
    made = arguments(case, {k: x.cuda() for k, x in given.items()}, outputs)
    _core.slot_select_grad(*for_core(made | {"stream": torch.cuda.current_stream().cuda_stream}))
    assert differing(on_cpu(outputs), run(case, given)) == []


@pytest.mark.parametrize("name", ["m", "l", "s f32", "six", "many"])
def test_plans_and_captured_launches(name: str) -> None:
    case = ALL[name]
    given, outputs = grad_inputs(case), grad_outputs(case, "cuda")
    wanted = run(case, given)
    moved = {k: x.cuda() for k, x in given.items()}
    StepChain([plan_of(case, moved, outputs)], 1).run()
    assert differing(on_cpu(outputs), wanted) == []
    made = arguments(case, moved, outputs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        stream = torch.cuda.current_stream().cuda_stream
        _core.slot_select_grad(*for_core(made | {"stream": stream}))
    for tensor in outputs.values():
        tensor.zero_()
    graph.replay()
    assert differing(on_cpu(outputs), wanted) == []


def test_the_comparison_can_fail() -> None:
    case = CASES["m"]
    given = grad_inputs(case)
    changed = run(case, given, key_scale=2.0)
    assert differing(changed, run(case, given)) == ["key_d_scores"]
