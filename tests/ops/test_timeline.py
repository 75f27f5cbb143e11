"""The sorted lists, records and log sums of a chunk against loops over its entries."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from op_cases import Case, make_inputs

from sdm_runtime.ops.geometry import Geometry, Segment
from sdm_runtime.ops.log_sums import segmented_cumsum, segmented_suffix_sum
from sdm_runtime.ops.records import first_counts, payload, write_groups
from sdm_runtime.ops.segment_state import segment_state
from sdm_runtime.ops.staging import Inputs
from sdm_runtime.ops.timeline import build_timeline

_PA2 = torch.load(Path(__file__).parents[1] / "data" / "pa2_steps.pt", weights_only=True)
_CASES = {
    "plain": Case(P=2, T=40, S=9, W=3, R=4),
    "repeats": Case(P=2, T=40, S=4, W=5, R=6, repeats=True, gate_per_write=True),
    "one slot": Case(P=1, T=20, S=1, W=1, R=3),
}


def _state(case, inputs=None):
    inputs = dict(make_inputs(case) if inputs is None else inputs)
    memory = inputs.pop("memory")
    geometry = Geometry(case.P, case.T, case.C, case.W, case.R, case.hd, memory.shape[0])
    segment = Segment(0, geometry.steps)
    return segment_state(Inputs(**inputs), geometry, segment, memory.dtype), geometry


def _entries(state, geometry, chunk, kind):
    """(slot, token, column) of a chunk's valid entries, and the padding's (token, column)."""
    rows = (state.chunks.k_rows if kind == "write" else state.chunks.q_rows)[chunk]
    valid, padding = [], []
    for token in range(geometry.chunk):
        for column in range(rows.shape[1]):
            if state.chunks.valid[chunk, token]:
                valid.append((int(rows[token, column]), token, column))
            else:
                padding.append((token, column))
    return sorted(valid), padding


@pytest.mark.parametrize("name", _CASES)
def test_lists_are_sorted_and_ranges_right(name):
    state, geometry = _state(_CASES[name])
    line = state.timeline
    for n in range(geometry.chunks):
        writes, padding = _entries(state, geometry, n, "write")
        reads, _ = _entries(state, geometry, n, "read")
        got = list(zip(line.writes.row[n].tolist(), line.writes.token[n].tolist(), strict=True))
        assert got[: len(writes)] == [(s, t) for s, t, _ in writes]
        assert line.writes.entry[n, len(writes) :].tolist() == [
            t * geometry.writes + c for t, c in padding
        ]
        for i, (slot, token, _) in enumerate(writes):
            same = [j for j, w in enumerate(writes) if w[0] == slot]
            run = [j for j in same if writes[j][1] == token]
            seen = [j for j, r in enumerate(reads) if r[0] == slot and r[1] >= token]
            assert (line.writes.start[n, i], line.writes.stop[n, i]) == (same[0], same[-1] + 1)
            assert (line.run_start[n, i], line.run_stop[n, i]) == (run[0], run[-1] + 1)
            start, stop = int(line.reader_start[n, i]), int(line.reader_stop[n, i])
            assert list(range(start, stop)) == seen
        for i, (slot, token, _) in enumerate(reads):
            seen = [j for j, w in enumerate(writes) if w[0] == slot and w[1] <= token]
            start, stop = int(line.source_start[n, i]), int(line.source_stop[n, i])
            assert list(range(start, stop)) == seen


@pytest.mark.parametrize("name", _CASES)
def test_log_sums(name):
    state, geometry = _state(_CASES[name])
    for n in range(geometry.chunks):
        writes, _ = _entries(state, geometry, n, "write")
        reads, _ = _entries(state, geometry, n, "read")
        gates = state.chunks.g[n].double()

        def total(slot, last, writes=writes, gates=gates):
            return sum(float(gates[t, c]) for s, t, c in writes if s == slot and t <= last)

        for i, (slot, token, _) in enumerate(writes):
            assert state.sums.write[n, i] == pytest.approx(total(slot, token), abs=1e-12)
            assert state.sums.total[n, i] == pytest.approx(total(slot, 10**6), abs=1e-12)
        for i, (slot, token, _) in enumerate(reads):
            assert state.sums.read[n, i] == pytest.approx(total(slot, token), abs=1e-12)


def test_an_earlier_order_gives_the_same_timeline():
    state, geometry = _state(_CASES["repeats"])
    chunks = state.chunks
    again = build_timeline(
        chunks.k_rows, chunks.q_rows, chunks.valid, geometry.bank_rows, state.timeline.order
    )
    flat = [*again.writes, *again.reads, *again[2:]]
    for given, wanted in zip(
        flat, [*state.timeline.writes, *state.timeline.reads, *state.timeline[2:]], strict=True
    ):
        assert torch.equal(given, wanted)


@pytest.mark.parametrize("rows", [2**25 - 2, 2**25 - 1, 2**31 - 2])
def test_banks_of_many_rows(rows):
    # The keys are int32 where 64 chunks times the rows fit, int64 where they do not.
    gen = torch.Generator().manual_seed(0)
    slots = torch.randint(rows - 50, rows, (64, 16, 3), generator=gen, dtype=torch.int32)
    valid = torch.ones(64, 16, dtype=torch.bool)
    line = build_timeline(slots, slots.clone(), valid, rows)
    wanted = slots.flatten(1).sort(dim=1, stable=True)
    assert torch.equal(line.writes.row, wanted.values)
    assert torch.equal(line.writes.entry, wanted.indices)


@pytest.mark.parametrize("name", _PA2)
def test_records_as_recorded(name):
    before = _PA2[name]["before"]
    kpay, rec, bpre = before["kpay"], before["rec"], before["bpre"]
    word = kpay.long() & 0xFFFFFFFF
    token, column, valid = (word >> 9) & 255, word & 255, (word >> 17) & 1 == 0
    chunk, width = int(token.max()) + 1, int(column.max()) + 1
    # Undo the sort, and sort again.
    entry = token * width + column
    rows = torch.empty_like(rec[..., 1]).scatter_(1, entry, rec[..., 1])
    alive = torch.empty_like(valid).scatter_(1, entry, valid).view(-1, chunk, width)[..., 0]
    k_rows = rows.view(-1, chunk, width)
    line = build_timeline(k_rows, k_rows[..., :1], alive, 1 << 20)
    assert torch.equal(payload(line.writes, width), kpay)
    assert torch.equal(first_counts(line.writes), bpre)
    assert torch.equal(write_groups(line.writes).used, bpre[:, -1].long())


def test_payload_saturates_the_distance():
    rows = torch.zeros(1, 32, 256, dtype=torch.int32)
    valid = torch.ones(1, 32, dtype=torch.bool)
    line = build_timeline(rows, rows[..., :1], valid, 1)
    word = payload(line.writes, 256)[0].long() & 0xFFFFFFFF
    distance = (word >> 18) & 4095
    assert distance[:4096].tolist() == list(range(4096))
    assert set(distance[4096:].tolist()) == {4095}
    assert [i for i, w in enumerate(word.tolist()) if w >> 31] == [0]
    assert [i for i, w in enumerate(word.tolist()) if (w >> 30) & 1] == [8191]


def test_segmented_sums_keep_a_nan_in_its_range():
    x = torch.arange(1.0, 8.0, dtype=torch.float64)
    x[3] = torch.nan
    start = torch.tensor([[0, 0, 0, 3, 3, 5, 5]])
    stop = torch.tensor([[3, 3, 3, 5, 5, 7, 7]])
    nan = torch.nan
    torch.testing.assert_close(
        segmented_cumsum(x[None], start)[0],
        torch.tensor([1.0, 3, 6, nan, nan, 6, 13], dtype=torch.float64),
        equal_nan=True,
    )
    torch.testing.assert_close(
        segmented_suffix_sum(x[None], stop)[0],
        torch.tensor([6.0, 5, 3, nan, 5, 13, 7], dtype=torch.float64),
        equal_nan=True,
    )
