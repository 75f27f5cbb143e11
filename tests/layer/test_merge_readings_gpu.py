"""merge_readings on a GPU: the CPU's bits, eager, captured and in a chain with early starts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from merge_cases import BF16, ROWS, TYPES, Merge, merge_case
from torch import Tensor

from sdm_runtime import StepChain
from sdm_runtime.layer.readings import merge_readings, plan_merge_readings
from sdm_runtime.linear import plan_bf16_linear

# More rows than blocks: several a block.
LARGE = [(32, 8, 16, 64), (4, 32, 2, 256)]


def on_gpu(case: Merge) -> Merge:
    """The same, strides included."""

    def move(x: Tensor) -> Tensor:
        memory = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda")
        return memory.copy_(x)

    norm = case.norm and case.norm._replace(
        weight=move(case.norm.weight), bias=move(case.norm.bias)
    )
    gate = None if case.gate is None else move(case.gate)
    return Merge(move(case.readings), norm, gate, case.dtype)


def merged(case: Merge) -> Tensor:
    return merge_readings(case.readings, case.dtype, norm=case.norm, gate=case.gate)


@pytest.mark.parametrize("sizes", ROWS + LARGE)
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("gap", [0, 3, 4])
def test_the_hosts_bits(sizes: tuple[int, ...], types: tuple[Any, ...], gap: int) -> None:
    case = merge_case(sizes, types, gap)
    assert torch.equal(merged(on_gpu(case)).cpu(), merged(case))


def test_captured() -> None:
    sizes = (2, 3, 4, 300)
    static = on_gpu(merge_case(sizes, TYPES[0], 0))
    merged(static)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = merged(static)
    for seed in (3, 4):
        case = merge_case(sizes, TYPES[0], 0, seed)
        static.readings.copy_(case.readings)
        assert static.gate is not None
        assert static.norm is not None
        assert case.gate is not None
        assert case.norm is not None
        static.gate.copy_(case.gate)
        static.norm.weight.copy_(case.norm.weight)
        static.norm.bias.copy_(case.norm.bias)
        graph.replay()
        assert torch.equal(captured.cpu(), merged(case))


@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="bf16_linear needs compute capability 9.0",
)
@pytest.mark.parametrize("pdl", [False, True])
@pytest.mark.parametrize("sizes", [(1, 1, 16, 128), (32, 1, 2, 1024), (2, 8, 8, 64)])
def test_between_projections_in_a_chain(sizes: tuple[int, ...], pdl: bool) -> None:
    torch.manual_seed(0)
    case = on_gpu(merge_case(sizes, TYPES[0], 0))
    assert case.gate is not None
    batches, tokens, heads, hd = sizes
    dim, rows = heads * hd, batches * tokens
    x = torch.randn(rows, 512, device="cuda", dtype=BF16)
    into = torch.randn(dim, 512, device="cuda", dtype=BF16) / 20
    out = torch.randn(256, dim, device="cuda", dtype=BF16) / 40
    between = torch.empty(batches, tokens, dim, device="cuda", dtype=BF16)
    y = torch.empty(rows, 256, device="cuda", dtype=BF16)
    options: dict[str, Any] = {"norm": case.norm, "gate": case.gate, "pdl": pdl}
    plans = [
        plan_bf16_linear(x, into, case.gate.view(rows, dim), pdl=pdl),
        plan_merge_readings(case.readings, between, **options),
        plan_bf16_linear(between.view(rows, dim), out, y, pdl=pdl),
    ]
    chain = StepChain(plans, 1)
    graph = chain.graph()
    seen = []
    for number in range(100):
        x.normal_()
        chain.run() if number % 2 else graph.replay()
        wanted = merged(case)  # of the gate that the chain has left
        assert torch.equal(between, wanted)
        seen.append(y.clone())
    assert not torch.equal(seen[0], seen[1])  # the control
