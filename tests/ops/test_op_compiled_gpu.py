"""The operation in compiled graphs on a device, also where torch captures them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from compiled_cases import counted, fresh_compilations, inputs_of, train, write_read
from op_cases import Case

CASE = Case(P=4, T=200, S=256, hd=64, W=8, R=8, C=64)
KINDS = {
    "f32": CASE,
    "bf16": CASE.but(dtype=torch.bfloat16),
    "fp8 rows": CASE.but(dtype=torch.bfloat16, options={"snapshot_quant": "fp8"}),
    "slices": CASE.but(hd=512, dtype=torch.bfloat16, options={"grad_bank_fp32": True}),
    "short": CASE.but(T=1),
}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    with fresh_compilations():
        yield


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_training_step_is_that_of_eager(backend: str, kind: str) -> None:
    case = KINDS[kind]
    inputs = inputs_of(case, "cuda")
    compiled, counter = counted(write_read, backend)
    wanted = train(write_read, case, inputs)
    for _ in range(2):
        assert train(compiled, case, inputs).differs(wanted) == []
    assert counter.frame_count == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_call_without_a_gradient_advances_the_bank(backend: str) -> None:
    compiled, _ = counted(write_read, backend)
    wanted, given = inputs_of(CASE, "cuda"), inputs_of(CASE, "cuda")
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(compiled(given, CASE), write_read(wanted, CASE))
            assert torch.equal(given["memory"], wanted["memory"])


def test_lengths_share_graphs() -> None:
    compiled, counter = counted(write_read, "inductor", dynamic=True)
    for tokens in (200, 130, 90, 70):
        case = CASE.but(T=tokens)
        inputs = inputs_of(case, "cuda")
        assert train(compiled, case, inputs).differs(train(write_read, case, inputs)) == []
    assert counter.frame_count == 1


def test_with_graphs_of_the_device() -> None:
    """mode="reduce-overhead": recorded at the second call, replayed from the third."""

    def made(inputs: dict[str, torch.Tensor], case: Case) -> torch.Tensor:
        return write_read(inputs | {"memory": 1.0 * inputs["memory"]}, case)

    compiled = torch.compile(made, mode="reduce-overhead", fullgraph=True)
    inputs = inputs_of(CASE, "cuda")
    wanted = train(made, CASE, inputs)
    for _ in range(5):
        torch.compiler.cudagraph_mark_step_begin()
        assert train(compiled, CASE, inputs).differs(wanted) == []
