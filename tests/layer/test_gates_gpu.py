"""The gates on a GPU: the CPU's bits, eager, captured and in a chain with early starts."""

from __future__ import annotations

import pytest
import torch
from gate_cases import BF16, DTYPES, SIZES, Sizes, gate_inputs, run_with_gradients, upstream
from torch import Tensor

from sdm_runtime import StepChain
from sdm_runtime.layer.gates import plan_token_gates, token_gates
from sdm_runtime.linear import plan_bf16_linear

# Heads of one block, and of clusters of 2, 4 and 8.
LARGE = [Sizes(1, 1500, 3), Sizes(2, 1600, 2), Sizes(1, 8192, 16), Sizes(2, 8200, 8)]


def on_gpu(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The same, strides included."""
    moved = []
    for x in inputs:
        memory = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda")
        moved.append(memory.copy_(x))
    return tuple(moved)


def gradients_on_gpu(inputs: tuple[Tensor, ...], sizes: Sizes) -> tuple[Tensor, ...]:
    leaves = [x.requires_grad_() for x in on_gpu(inputs)]
    outs = token_gates(*leaves)
    grads = torch.autograd.grad(outs, leaves, [x.cuda() for x in upstream(sizes)])
    return tuple(x.detach().cpu() for x in (*outs, *grads))


@pytest.mark.parametrize("sizes", SIZES + LARGE, ids=str)
@pytest.mark.parametrize(("projected", "own"), DTYPES)
@pytest.mark.parametrize("gap", [0, 5])
def test_the_hosts_bits(sizes: Sizes, projected: torch.dtype, own: torch.dtype, gap: int) -> None:
    inputs = gate_inputs(sizes, projected, own, gap)
    wanted = run_with_gradients(token_gates, inputs, sizes)
    for _ in range(3):
        for given, expected in zip(gradients_on_gpu(inputs, sizes), wanted, strict=True):
            assert torch.equal(given, expected)


def test_no_tokens() -> None:
    sizes = Sizes(2, 0, 3)
    given = gradients_on_gpu(gate_inputs(sizes), sizes)
    assert torch.equal(given[4], torch.zeros(3))


def test_captured() -> None:
    sizes = Sizes(1, 4000, 4)
    static = on_gpu(gate_inputs(sizes, BF16))
    leaves = [x.requires_grad_() for x in static]
    d_out = [x.cuda() for x in upstream(sizes)]

    def step() -> tuple[Tensor, ...]:
        outs = token_gates(*leaves)
        return *outs, *torch.autograd.grad(outs, leaves, d_out)

    step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for seed in (3, 4):
        inputs = gate_inputs(sizes, BF16, seed=seed)
        with torch.no_grad():
            for to, x in zip(static, inputs, strict=True):
                to.copy_(x)
        graph.replay()
        wanted = run_with_gradients(token_gates, inputs, sizes)
        for given, expected in zip(captured, wanted, strict=True):
            assert torch.equal(given.detach().cpu(), expected)


@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="bf16_linear needs compute capability 9.0",
)
@pytest.mark.parametrize("pdl", [False, True])
@pytest.mark.parametrize("sizes", [Sizes(1, 1, 16), Sizes(32, 1, 2), Sizes(2, 8, 8)], ids=str)
def test_behind_the_projections_in_a_chain(sizes: Sizes, pdl: bool) -> None:
    torch.manual_seed(0)
    batches, tokens, heads = sizes
    a, b, a_log, dt_bias = on_gpu(gate_inputs(sizes, BF16))
    weights = [torch.randn(heads, 512, device="cuda", dtype=BF16) / 20 for _ in range(2)]
    x = torch.randn(batches * tokens, 512, device="cuda", dtype=BF16)
    beta, g = (torch.empty(batches * heads, tokens, 1, device="cuda") for _ in range(2))
    rows = [y.view(-1, heads) for y in (a, b)]
    plans = [plan_bf16_linear(x, w, y, pdl=pdl) for w, y in zip(weights, rows, strict=True)]
    plans.append(plan_token_gates(a, b, a_log, dt_bias, beta, g, pdl=pdl))
    chain = StepChain(plans, 1)
    graph = chain.graph()
    seen = []
    for number in range(200):
        x.normal_()
        chain.run() if number % 2 else graph.replay()
        wanted = token_gates(*(y.cpu() for y in (a, b, a_log, dt_bias)))
        assert torch.equal(beta.cpu(), wanted[0])
        assert torch.equal(g.cpu(), wanted[1])
        seen.append(wanted[0])
    assert not torch.equal(seen[0], seen[1])  # the control
