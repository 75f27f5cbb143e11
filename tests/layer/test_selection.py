"""The selection by kernels: the general way's slots, scores and gradients, and where it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from kernel_checks import as_bits
from layer_cases import make_input, make_layer
from naive_topk import naive_topk
from select_cases import CASES, SelectCase, projections, scores_of
from test_product_keys import problems
from torch import Tensor, nn

from sdm_runtime.layer import selection
from sdm_runtime.layer.activations import L2Normalize, SlotWeights
from sdm_runtime.layer.candidates import CandidateTables, candidate_tables
from sdm_runtime.layer.selection import L2, NONE, RAW, SOFTMAX, Weights, own_weights, select_slots

BOTH = {name: case for name, case in CASES.items() if len(case.sides) == 2}


def select(case: SelectCase, scores: dict[str, Tensor], **changed: Any) -> tuple[Tensor, ...]:
    codes = {"none": NONE, "softmax": SOFTMAX, "l2": L2}
    weights = [Weights(codes[a], s) for _, a, s in (case.side("key"), case.side("query"))]
    tables = [candidate_tables(case.dims, k) for k in (case.k, case.q)]
    given = [case.dims, case.heads, *tables, *weights]
    run = changed.get("run", select_slots)
    made: tuple[Tensor, ...] = run(scores["key"], scores["query"], *given)
    return made


def leaves(case: SelectCase) -> dict[str, Tensor]:
    given = projections(case)
    return {name: scores_of(case, x).clone().requires_grad_() for name, x in given.items()}


def in_torch(monkeypatch: pytest.MonkeyPatch, case: SelectCase, scores: dict) -> tuple[Tensor, ...]:
    with monkeypatch.context() as patch:
        patch.setattr(selection, "unserved", lambda *_: "for the test")
        return select(case, scores)


def assert_like_naive(scores: Tensor, dims: tuple[int, ...], k: int) -> None:
    """Rows of one head as tokens; twice as many slots of a query are another side."""
    tables = candidate_tables(dims, k)
    made = select_slots(scores[None], scores[None], dims, 1, tables, tables)
    assert torch.equal(made.k_idx, made.q_idx)
    assert torch.equal(as_bits(made.k_val), as_bits(made.q_val))
    for row, slots, values in zip(scores, made.k_idx[0], made.k_val[0], strict=True):
        expected_slots, expected = naive_topk(row.float().numpy(), dims, k)
        assert slots.tolist() == expected_slots
        assert torch.equal(as_bits(values), as_bits(torch.from_numpy(expected)))


@given(problems())
@settings(max_examples=150, deadline=None)
def test_ties_and_special_values(problem: tuple[Tensor, tuple[int, ...], int]) -> None:
    assert_like_naive(*problem)


@pytest.mark.parametrize(
    ("dims", "k"),
    [((9, 9), 20), ((12, 5), 60), ((1, 17), 4), ((4, 3, 5), 11), ((2,) * 6, 33), ((40,), 7),
     ((5, 100), 50), ((6, 6), 36)],
)  # fmt: skip
@pytest.mark.parametrize("steps", [2, 8, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_random_scores_give_the_naive_choice(
    dims: tuple[int, ...], k: int, steps: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(k)
    assert_like_naive(((torch.randn(4, sum(dims)) * steps).round() / steps).to(dtype), dims, k)


def test_the_check_sees_another_rule_of_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    table = candidate_tables((4, 4), 2).on(torch.device("cpu"))
    flipped = type(table)(table.k, table.kept, table.positions[::-1], table.sums)
    monkeypatch.setattr(CandidateTables, "on", lambda *_: flipped)
    with pytest.raises(AssertionError):
        assert_like_naive(torch.zeros(1, 8), (4, 4), 2)


@pytest.mark.parametrize("name", BOTH)
def test_values_and_gradients_of_the_general_way(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    case = BOTH[name]
    found, wanted = leaves(case), leaves(case)
    made, expected = select(case, found), in_torch(monkeypatch, case, wanted)
    generator = torch.Generator().manual_seed(1)
    total, expected_total = torch.zeros(()), torch.zeros(())
    for index in range(4):
        a, b = made[index], expected[index]
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if index % 2 == 0:
            assert torch.equal(a, b)
            continue
        torch.testing.assert_close(a, b, rtol=2e-6, atol=1e-7, equal_nan=True)
        weight = torch.randn(a.shape, generator=generator)
        total, expected_total = total + (a * weight).sum(), expected_total + (b * weight).sum()
    total.backward()
    expected_total.backward()
    for side in ("key", "query"):
        grad, exact = found[side].grad, wanted[side].grad
        assert grad.dtype == case.dtype
        if case.values != "awkward":
            tolerance = 1e-5 if case.dtype == torch.float32 else 1e-2
            torch.testing.assert_close(grad, exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["m", "m f32", "six", "s"])
def test_a_compiled_selection_is_one_graph(name: str) -> None:
    case = BOTH[name]
    torch._dynamo.reset()
    compiled = torch.compile(select_slots, fullgraph=True, backend="aot_eager")
    results = []
    for run in (select_slots, compiled):
        scores = leaves(case)
        made = select(case, scores, run=run)
        (made[1].square().sum() + made[3].sin().sum()).backward()
        results.append([*made, scores["key"].grad, scores["query"].grad])
    for a, b in zip(*results, strict=True):
        assert torch.equal(as_bits(a.detach()), as_bits(b.detach()))


def test_a_view_of_the_projection_is_read_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["m view"]
    views = {name: scores_of(case, x) for name, x in projections(case).items()}
    wanted = select(case, {name: x.contiguous() for name, x in views.items()})
    monkeypatch.setattr(Tensor, "contiguous", lambda _: pytest.fail("a copy"))
    for a, b in zip(select(case, views), wanted, strict=True):
        assert torch.equal(a, b)


def test_columns_apart_and_other_dtypes() -> None:
    case = CASES["tiny"]
    scores = {name: x.detach() for name, x in leaves(case).items()}
    wanted = select(case, scores)
    apart = {name: x.mT.contiguous().mT for name, x in scores.items()}
    wide = {name: x.double() for name, x in scores.items()}
    mixed = {"key": scores["key"], "query": scores["query"].double()}
    for other in (apart, wide, mixed):
        for a, b in zip(select(case, other), wanted, strict=True):
            assert torch.equal(a, b)


def test_a_side_without_use_has_no_gradient() -> None:
    case = CASES["m f32"]
    scores = leaves(case)
    select(case, scores)[1].sum().backward()
    assert not scores["query"].grad.any()
    scores = leaves(case)
    scores["key"].requires_grad_(False)
    select(case, scores)[3].square().sum().backward()
    assert scores["key"].grad is None
    assert scores["query"].grad.any()


def test_no_tokens() -> None:
    scores = torch.zeros(2, 0, 3 * 10, requires_grad=True)
    tables = candidate_tables((5, 5), 4)
    made = select_slots(scores, scores, (5, 5), 3, tables, tables, Weights(L2, 2.0))
    assert [tuple(x.shape) for x in made] == [(6, 0, 4)] * 4
    made.k_val.sum().backward()
    assert scores.grad.shape == scores.shape


@pytest.mark.parametrize(
    ("dims", "k", "reason"),
    [
        ((2,) * 9, 3, "9 factors, more than 8"),
        ((1025, 2), 3, "a factor of 1025 columns, more than 1024"),
        ((64, 64), 257, "257 slots, more than 256"),
        ((16,) * 8, 200, "candidates, more than"),
    ],
)
def test_what_the_kernels_do_not_take_goes_the_general_way(
    dims: tuple[int, ...], k: int, reason: str
) -> None:
    tables, few = candidate_tables(dims, k), candidate_tables(dims, 1)
    assert reason in (selection.unserved(dims, few, tables) or "")
    torch.manual_seed(0)
    scores = torch.randn(1, 2, sum(dims), requires_grad=True)
    made = select_slots(scores, scores, dims, 1, few, tables, Weights(SOFTMAX, 2.0))
    assert torch.equal(made.k_val, torch.ones(1, 2, 1))
    assert (made.q_idx.diff(dim=-1) > 0).all()
    made.q_val.sum().backward()
    assert scores.grad.any()
    assert selection.unserved((1024, 2), few) is None


class Loud(nn.Softmax):
    """The same as Softmax, but another type."""


def _hooked(how: str) -> Callable[[SlotWeights], None]:
    def change(weights: SlotWeights) -> None:
        getattr(weights.act, how)(lambda *_: None)

    return change


CALLED: dict[str, Callable[[SlotWeights], Any]] = {
    "a subclass": lambda w: setattr(w, "act", Loud(-1)),
    "another dim": lambda w: setattr(w, "act", nn.Softmax(1)),
    "a sequence": lambda w: setattr(w, "act", nn.Sequential(w.act)),
    "another activation": lambda w: setattr(w, "act", nn.Softmin(-1)),
    "a forward": lambda w: setattr(w.act, "forward", lambda x: x.softmax(-1)),
    "an outer forward": lambda w: setattr(w, "forward", lambda x: x.softmax(-1)),
    "a hook": _hooked("register_forward_hook"),
    "a pre-hook": _hooked("register_forward_pre_hook"),
    "a backward hook": _hooked("register_full_backward_hook"),
    "an outer hook": lambda w: w.register_forward_hook(lambda *_: None),
}


@pytest.mark.parametrize("name", CALLED)
def test_activations_that_are_called_as_they_are(name: str) -> None:
    weights = SlotWeights("Softmax", 3.0)
    assert own_weights(weights) == Weights(SOFTMAX, 3.0)
    CALLED[name](weights)
    assert own_weights(weights) is RAW


def test_the_activations_made_inside() -> None:
    assert own_weights(SlotWeights("l2_normalize", 0.5)) == Weights(L2, 0.5)
    assert type(SlotWeights("l2_normalize", 0.5).act) is L2Normalize
    for name in ("Identity", "ReLU", "LogSoftmax", "Sigmoid"):
        assert own_weights(SlotWeights(name, 1.0)) is RAW
    assert own_weights(nn.Softmax(-1)) is RAW


@pytest.mark.parametrize("act", ["Softmax", "l2_normalize"])
def test_a_layer_whose_activation_is_called_gives_the_same(act: str) -> None:
    layer = make_layer(read_act=act, write_act=act, read_act_scale=2.0)
    x = make_input(layer)
    y = layer(x)[0]
    calls = []
    layer.read_act.register_forward_hook(lambda *_: calls.append(1))
    again = layer(x)[0]
    assert calls == [1]
    torch.testing.assert_close(again, y, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(layer(x)[0].detach().numpy(), again.detach().numpy())
