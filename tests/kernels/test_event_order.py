"""Every chunk's events in order of their slots, against a stable sort."""

from __future__ import annotations

import pytest
import torch
from chunk_cases import (
    CASES,
    I32,
    ORDER_CASES,
    OUTSIDE,
    POISON,
    ChunkCase,
    chunk_inputs,
    chunk_order,
    order_outputs,
    outside_of,
    sizes,
)

from sdm_runtime import _core
from sdm_runtime.ops.call.staging import Inputs
from sdm_runtime.ops.chunks import chunk_kernels
from sdm_runtime.ops.chunks.chunk_kernels import event_order


@pytest.mark.parametrize("name", CASES | ORDER_CASES | OUTSIDE)
def test_the_order_is_that_of_a_stable_sort(name: str) -> None:
    case = (CASES | ORDER_CASES | OUTSIDE)[name]
    inputs = chunk_inputs(case)
    order = event_order(Inputs(**inputs, v=torch.empty(0)), *sizes(case))
    wanted = chunk_order(case, inputs)
    assert torch.equal(order.order, wanted["order"])
    assert torch.equal(order.sorted_slots, wanted["sorted_slots"])


def test_an_order_of_equal_slots_is_seen_to_be_stable() -> None:
    """Another order of one slot's events differs from the sort's."""
    case = ChunkCase(S=1, W=1)
    wanted = chunk_order(case, chunk_inputs(case))["order"]
    assert not torch.equal(wanted.flip(1)[0], wanted[0])


@pytest.mark.parametrize("indices", [I32, torch.int64])
@pytest.mark.parametrize("rows", [2**22, 2**25, 2**31 - 2])
def test_orders_in_banks_of_many_rows(rows: int, indices: torch.dtype) -> None:
    """All of one bank is each sequence's, or half of it."""
    for slots in (0, rows // 2):
        low = torch.tensor([0, slots]).view(2, 1, 1)
        found = (torch.rand(2, 40, 5, dtype=torch.float64) * (slots or rows)).long() + low
        found[:, ::3] = found[:, :1]
        found[:, 1, 0], found[:, 1, 1] = low.flatten(), low.flatten() + (slots or rows) - 1
        parts = {"k_idx": found[..., :3], "q_idx": found[..., 3:]}
        inputs = {name: x.to(indices).contiguous() for name, x in parts.items()}
        case = ChunkCase(P=2, T=40, W=3, R=2, S=rows // 2, shared=not slots)
        given = Inputs(**inputs, **dict.fromkeys(("k_val", "v", "beta", "g", "q_val"), found))
        order = event_order(given, *sizes(case))
        wanted = chunk_order(case, inputs)
        assert torch.equal(order.order, wanted["order"])
        assert torch.equal(order.sorted_slots, wanted["sorted_slots"])


@pytest.mark.parametrize("name", OUTSIDE)
def test_events_outside_have_no_slot_and_stand_before_padding(name: str) -> None:
    case = OUTSIDE[name]
    inputs = chunk_inputs(case)
    order = event_order(Inputs(**inputs, v=torch.empty(0)), *sizes(case))
    outside = torch.cat([outside_of(case, inputs[n]) for n in ("k_idx", "q_idx")], 2)
    assert outside.any()
    for n in range(case.chunks):
        step, sequence = case.first_step + n // case.P, n % case.P
        here = outside[sequence, step * case.C : (step + 1) * case.C].flatten()
        wanted = here.nonzero().flatten().tolist()
        padding = list(range(here.numel(), case.events))
        without = order.order[n][order.sorted_slots[n] < 0]
        assert without.tolist() == wanted + padding
        assert sorted(order.order[n].tolist()) == list(range(case.events))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"k_idx": torch.Tensor.float}, TypeError, "k_idx: expected int32 or int64, got float32"),
        ({"k_idx": lambda x: x[0]}, ValueError, "k_idx: expected int32 [P, T, W]"),
        ({"q_idx": lambda x: x[:, 1:]}, ValueError, "q_idx: expected int32 [2, 40, R]"),
        ({"q_idx": torch.Tensor.half}, TypeError, "q_idx: expected int32 or int64, got float16"),
        (
            {"sorted_slots": lambda x: x[:, 1:]},
            ValueError,
            "sorted_slots: expected int32 [6, 112]",
        ),
        ({"sorted_slots": torch.Tensor.long}, TypeError, "sorted_slots: expected int32 [6, 112]"),
        ({"order": torch.Tensor.long}, TypeError, "order: expected int32 [6, 112], got int64"),
        ({"order": lambda x: x[1:]}, ValueError, "and a divisor of the 5 chunks, got 2"),
        ({"order": lambda x: x[:4]}, ValueError, "sorted_slots: expected int32 [4, 112]"),
        ({"outside": torch.Tensor.int}, TypeError, "outside: expected int64 [2], got int32 [2]"),
        ({"outside": lambda x: x[:1]}, ValueError, "outside: expected int64 [2], got int64 [1]"),
        ({"rows": 0}, ValueError, "bank_rows: expected 1..2^31 - 1, got 0"),
        ({"rows": 2**31}, ValueError, f"bank_rows: expected 1..2^31 - 1, got {2**31}"),
        ({"slots": 8}, ValueError, "num_slots: expected 0, or those of each of 2 sequences in 18"),
        ({"slots": -9}, ValueError, "num_slots: expected 0, or those of each of 2 sequences in 18"),
        ({"slots": 9, "rows": 19}, ValueError, "num_slots: expected 0, or those of each of 2"),
        ({"chunk": 257}, ValueError, "257"),
        ({"first": 3}, ValueError, "first_step: expected a step in 0..2, got 3"),
    ],
)
def test_wrong_arguments_of_event_order(change: dict, error: type, message: str) -> None:
    case = ChunkCase()
    inputs, out = chunk_inputs(case), order_outputs(case)
    given = {k: inputs[k] for k in ("k_idx", "q_idx")} | out
    given["outside"] = torch.zeros(2, dtype=torch.int64)
    wrong = {k: change.get(k, lambda x: x)(x) for k, x in given.items()}
    numbers = {"slots": 9, "rows": 18, "chunk": 16, "first": 0}
    with pytest.raises(error) as caught:
        chunk_kernels._launch(
            _core.event_order, wrong, *(change.get(k, x) for k, x in numbers.items())
        )
    assert str(caught.value).startswith("[event_order] ")
    assert message in str(caught.value)
    assert all((x == POISON).all() for x in out.values())
