"""The selection on a GPU: the CPU's bits, and safe inside a capture."""

from __future__ import annotations

import pytest
import torch

from sdm_runtime.layer.candidates import candidate_tables
from sdm_runtime.layer.product_keys import product_key_topk


def scores(rows: int) -> torch.Tensor:
    """Coarse values, so that most selections are decided by the rules of ties."""
    torch.manual_seed(0)
    drawn = torch.randn(rows, 200).round(decimals=1)
    drawn[0, ::3], drawn[1, ::2], drawn[2] = torch.nan, -0.0, torch.inf
    return drawn


def test_same_bits_as_the_cpu() -> None:
    cpu = scores(500)
    slots, selected = product_key_topk(cpu.cuda(), (100, 100), 64)
    expected_slots, expected_selected = product_key_topk(cpu, (100, 100), 64)
    assert torch.equal(slots.cpu(), expected_slots)
    assert torch.equal(selected.cpu().nan_to_num(7.0), expected_selected.nan_to_num(7.0))


def test_gradient_repeats_bit_for_bit() -> None:
    leaf = scores(500).cuda().requires_grad_()
    _, selected = product_key_topk(leaf, (100, 100), 64)
    weight = torch.randn_like(selected)
    grads = [torch.autograd.grad(selected, leaf, weight, retain_graph=True)[0] for _ in range(5)]
    assert all(torch.equal(grad, grads[0]) for grad in grads)


def test_tables_are_made_before_a_capture() -> None:
    candidate_tables.cache_clear()
    static = scores(64).cuda()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static.clone()  # torch warns of an empty graph
        with pytest.raises(RuntimeError, match="before the graph capture"):
            product_key_topk(static, (100, 100), 64)
    expected = product_key_topk(static, (100, 100), 64)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = product_key_topk(static, (100, 100), 64)
    static.copy_(static.flip(0))
    graph.replay()
    assert torch.equal(captured[0], expected[0].flip(0))
