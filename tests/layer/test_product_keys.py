"""The selection against every slot sorted by the rules."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_topk import naive_topk

from sdm_runtime.layer import product_keys
from sdm_runtime.layer.candidates import CandidateTables, candidate_tables
from sdm_runtime.layer.product_keys import product_key_topk

CPU = torch.device("cpu")
# Few distinct values, so that sums tie; large ones absorb small ones, so that rounding makes ties.
AWKWARD = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-7, 3e38, -3e38, math.inf, -math.inf, math.nan, 1e-45]


def check(scores: torch.Tensor, dims: tuple[int, ...], k: int) -> None:
    slots, selected = product_key_topk(scores, dims, k)
    for row, (slot, value) in zip(scores.numpy(), zip(slots, selected, strict=True), strict=True):
        expected_slots, expected_scores = naive_topk(row, dims, k)
        assert slot.tolist() == expected_slots
        # bit for bit, but any NaN for a NaN
        np.testing.assert_array_equal(value.numpy(), expected_scores)
        assert (
            np.array_equal(np.signbit(value.numpy()), np.signbit(expected_scores))
            or np.isnan(expected_scores).any()
        )


@st.composite
def problems(draw: st.DrawFn) -> tuple[torch.Tensor, tuple[int, ...], int]:
    dims = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    k = draw(st.integers(1, min(256, math.prod(dims))))
    values = draw(st.sampled_from([AWKWARD, AWKWARD[:6], [0.0, 1.0], [0.0]]))
    row = st.lists(st.sampled_from(values), min_size=sum(dims), max_size=sum(dims))
    return torch.tensor(draw(st.lists(row, min_size=1, max_size=3))), dims, k


@given(problems())
@settings(max_examples=150, deadline=None)
def test_ties_and_special_values(problem: tuple[torch.Tensor, tuple[int, ...], int]) -> None:
    check(*problem)


@pytest.mark.parametrize(
    ("dims", "k"),
    [((9, 9), 20), ((12, 5), 60), ((1, 17), 4), ((4, 3, 5), 11), ((2,) * 6, 33), ((40,), 7)],
)
@pytest.mark.parametrize("steps", [2, 8, 1000])
def test_random_scores_give_the_naive_choice(dims: tuple[int, ...], k: int, steps: int) -> None:
    """Scores in multiples of 1/steps: from many ties to none."""
    torch.manual_seed(k)
    check((torch.randn(4, sum(dims)) * steps).round() / steps, dims, k)


def test_all_equal_takes_the_largest_rank_sums() -> None:
    slots, _ = product_key_topk(torch.zeros(1, 8), (4, 4), 4)
    # ranks (3,3); of rank sum 5 (3,2) and (2,3); of rank sum 4 the larger first rank, (3,1)
    assert slots.tolist() == [[11, 13, 14, 15]]


def test_the_check_sees_another_rule_of_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table in another order of ties must be caught."""
    table = candidate_tables((4, 4), 2).on(CPU)
    flipped = type(table)(table.k, table.kept, table.positions[::-1], table.sums[::-1])
    monkeypatch.setattr(CandidateTables, "on", lambda *_: flipped)
    with pytest.raises(AssertionError):
        check(torch.zeros(1, 8), (4, 4), 2)


def test_many_slots_give_the_scores_of_a_full_top_k() -> None:
    """65536 slots: the scores of the best 128 are those of a top-k over every slot."""
    torch.manual_seed(0)
    scores = torch.randn(3, 512)
    slots, selected = product_key_topk(scores, (256, 256), 128)
    every = (scores[:, :256, None] + scores[:, None, 256:]).flatten(1)
    assert torch.equal(every.gather(1, slots.long()), selected)
    assert torch.equal(selected.sort(descending=True).values, every.topk(128).values)
    assert (slots.diff() > 0).all()


@pytest.mark.parametrize(("dims", "k"), [((6, 6), 10), ((3, 4, 2), 7), ((13,), 13), ((50, 2), 40)])
def test_gradient_reaches_the_selected_factor_scores(dims: tuple[int, ...], k: int) -> None:
    torch.manual_seed(1)
    scores = torch.randn(5, 2, sum(dims), requires_grad=True)
    slots, selected = product_key_topk(scores, dims, k)
    weight = torch.randn_like(selected)
    selected.backward(weight)
    columns = torch.unravel_index(slots.long(), dims)
    offsets = np.cumsum((0, *dims[:-1]))
    expected = torch.zeros(scores.shape, dtype=torch.float64)
    for column, offset in zip(columns, offsets, strict=True):
        expected.scatter_add_(-1, column + int(offset), weight.double())
    torch.testing.assert_close(scores.grad.double(), expected, rtol=1e-6, atol=1e-6)


def test_gradient_of_nonfinite_stays_in_its_columns() -> None:
    scores = torch.tensor([[3.0, 2.0, 1.0, 3.0, 2.0, 1.0]], requires_grad=True)
    _, selected = product_key_topk(scores, (3, 3), 3)
    selected.backward(torch.tensor([[1.0, torch.inf, 1.0]]))
    # slots (0,0), (0,1), (1,0)
    assert scores.grad.tolist() == [[math.inf, 1.0, 0.0, 2.0, math.inf, 0.0]]


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(2)
    scores = torch.randn(37, 20).round(decimals=1)

    def run() -> list[torch.Tensor]:
        leaf = scores.clone().requires_grad_()
        slots, selected = product_key_topk(leaf, (10, 10), 12)
        (selected * torch.arange(12.0)).sum().backward()
        return [slots, selected.detach(), leaf.grad]

    whole = run()
    monkeypatch.setitem(product_keys._CANDIDATES_PER_BLOCK, "cpu", 100)
    assert all(torch.equal(a, b) for a, b in zip(whole, run(), strict=True))


def test_results_have_their_shapes_and_dtypes() -> None:
    slots, selected = product_key_topk(torch.zeros(0, 3, 8), (4, 4), 5)
    assert slots.shape == selected.shape == (0, 3, 5)
    slots, selected = product_key_topk(torch.randn(2, 3, 8), (4, 4), 5)
    assert (slots.shape, slots.dtype) == ((2, 3, 5), torch.int32)
    assert (selected.shape, selected.dtype) == ((2, 3, 5), torch.float32)


@pytest.mark.parametrize(("width", "k"), [(100, 64), (256, 128), (65536, 128)])
def test_candidates_do_not_grow_with_the_slots(width: int, k: int) -> None:
    """Pairs of positions with (i+1) * (j+1) <= k, and little padding in the gradient's sums."""
    table = candidate_tables((width, width), k).on(CPU)
    assert table.count == sum(k // i for i in range(1, k + 1))
    padded = sum(group.numel() for sums in table.sums for group in sums.groups)
    assert padded <= 2 * 2 * table.count
