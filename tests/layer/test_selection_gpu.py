"""The selection on a GPU: the CPU's bits, forward and backward, and safe inside a capture."""

from __future__ import annotations

import pytest
import torch
from kernel_checks import as_bits
from select_cases import CASES, SelectCase, projections, scores_of
from torch import Tensor

from sdm_runtime.layer import selection
from sdm_runtime.layer.candidates import candidate_tables
from sdm_runtime.layer.selection import L2, NONE, SOFTMAX, Weights, select_slots

CODES = {"none": NONE, "softmax": SOFTMAX, "l2": L2}
BOTH = [name for name, case in CASES.items() if len(case.sides) == 2]


def step(case: SelectCase, device: str) -> list[Tensor]:
    """Both selections, and the gradients of both scores."""
    given = projections(case)
    scores = [scores_of(case, given[n]).to(device).requires_grad_() for n in ("key", "query")]
    weights = [Weights(CODES[a], s) for _, a, s in (case.side("key"), case.side("query"))]
    key_tables, query_tables = (candidate_tables(case.dims, k) for k in (case.k, case.q))
    key, query = scores
    made = select_slots(key, query, case.dims, case.heads, key_tables, query_tables, *weights)
    generator = torch.Generator().manual_seed(1)
    d = [torch.randn(x.shape, generator=generator).to(device) for x in (made.k_val, made.q_val)]
    grads = torch.autograd.grad([made.k_val, made.q_val], scores, d)
    return [x.detach().cpu() for x in (*made, *grads)]


@pytest.mark.parametrize("name", BOTH)
def test_same_bits_as_the_cpu(name: str) -> None:
    for found, wanted in zip(step(CASES[name], "cuda"), step(CASES[name], "cpu"), strict=True):
        assert torch.equal(as_bits(found), as_bits(wanted))


def test_a_captured_training_step() -> None:
    case = SelectCase(tokens=64, values="ties")
    tables = candidate_tables(case.dims, case.k)
    given = projections(case)
    scores = [given[n].cuda().requires_grad_() for n in ("key", "query")]
    weights = Weights(SOFTMAX, 1.0)
    d = torch.randn(case.heads, case.tokens, case.k, device="cuda")

    def run() -> list[Tensor]:
        key, query = scores
        made = select_slots(key, query, case.dims, case.heads, tables, tables, weights, weights)
        return [*made, *torch.autograd.grad([made.k_val, made.q_val], scores, [d, d])]

    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    for tensor in scores:
        tensor.data.copy_(tensor.data.flip(1))
    graph.replay()
    torch.cuda.synchronize()
    for a, b in zip(captured, run(), strict=True):
        assert torch.equal(as_bits(a.detach()), as_bits(b.detach()))


def test_tables_are_made_before_a_capture() -> None:
    candidate_tables.cache_clear()
    tables = candidate_tables((16, 16), 4)
    scores = torch.randn(1, 3, 32, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        scores.clone()  # torch warns of an empty graph
        with pytest.raises(RuntimeError, match="before the graph capture"):
            select_slots(scores, scores, (16, 16), 1, tables, tables)


def test_the_general_way_has_the_same_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    case = SelectCase(tokens=300, values="ties")
    found = step(case, "cuda")
    monkeypatch.setattr(selection, "unserved", lambda *_: "for the test")
    wanted = step(case, "cuda")
    assert torch.equal(found[0], wanted[0])
    assert torch.equal(found[2], wanted[2])
    torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-2)
