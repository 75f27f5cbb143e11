"""Every chunk's writes and reads in one stable order by slot: who shares a slot with whom.

One sort per chunk puts the writes and reads of a slot side by side, in token order, a token's
writes before its reads. Everything later (log sums, pairs, records) is ranges in that order.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Entries(NamedTuple):
    """A chunk's writes (or reads), sorted by slot; every field is [N, m], int64 if nothing is said.

    A group is the entries of one slot; every padding entry is a group of its own, behind all
    others. Ranges are half open, in places of this list.
    """

    entry: Tensor  # token * width + column: place in the staged inputs
    token: Tensor
    row: Tensor  # int32: absolute bank row, 0 for padding
    valid: Tensor  # bool
    start: Tensor  # of the entry's group
    stop: Tensor


class Timeline(NamedTuple):
    """Both lists, how they meet, and the order that rebuilds them without another sort."""

    writes: Entries
    reads: Entries
    run_start: Tensor  # of each write: the writes of its slot and token, more than one if repeated
    run_stop: Tensor
    source_start: Tensor  # of each read: the writes of its slot up to its token
    source_stop: Tensor
    reader_start: Tensor  # of each write: the reads of its slot from its token on
    reader_stop: Tensor
    order: Tensor  # [N, C * (W + R)] int64


def build_timeline(
    k_rows: Tensor, q_rows: Tensor, valid: Tensor, bank_rows: int, order: Tensor | None = None
) -> Timeline:
    """Sort rows k [N, C, W] and q [N, C, R] int32, or take the order of an earlier sort."""
    _, chunk, width = k_rows.shape
    slots = torch.cat((k_rows, q_rows), 2)
    # Padding sorts after every bank row.
    slots = slots.masked_fill_(~valid.unsqueeze(2), bank_rows).flatten(1)
    if order is None:
        order = _sort_rows(slots, bank_rows + 1)

    # Split the order into its writes and its reads, each still sorted.
    n, m = chunk * width, chunk * q_rows.shape[2]
    kinds = _EventTable(chunk, width, q_rows.shape[2], order.device)
    is_read = _look_up(kinds.is_read, order)
    place = torch.arange(n + m, device=order.device)
    reads_before = is_read.cumsum(1).sub_(is_read.to(torch.int64))
    # Written without torch.where, which is slow on the CPU for flags that alternate.
    rank = place - reads_before
    rank += is_read * (n + reads_before - rank)
    position = torch.empty_like(order).scatter_(1, rank, place.expand_as(order))
    write_at, read_at = position[:, :n], position[:, n:]
    write_slots, writes = _entries(slots, order.gather(1, write_at), kinds, bank_rows)
    read_slots, reads = _entries(slots, order.gather(1, read_at), kinds, bank_rows)

    run_first = _changes(write_slots).logical_or_(_changes(writes.token))
    run_start, run_stop = _ranges(run_first.logical_or_(~writes.valid))
    source_stop = read_at - place[:m]
    reader_start = write_at - place[:n]
    return Timeline(
        writes=writes,
        reads=reads,
        run_start=run_start,
        run_stop=run_stop,
        source_start=_source_start(read_slots, source_stop, write_slots, writes),
        source_stop=source_stop,
        reader_start=reader_start,
        reader_stop=_reader_stop(write_slots, reader_start, read_slots, reads),
        order=order,
    )


def _sort_rows(slots: Tensor, bound: int) -> Tensor:
    """The stable order [N, E] int64 of each row of slots [N, E] int32 < bound.

    As one flat sort: torch sorts flat integers by radix, several times faster than rows.
    """
    count, width = slots.shape
    fits = count * bound < 2**31
    rows = torch.arange(count, dtype=torch.int32 if fits else torch.int64, device=slots.device)
    keys = slots + (rows * bound).unsqueeze(1)
    order = torch.sort(keys.flatten(), stable=True).indices.view(count, width)
    return order.sub_(torch.arange(0, count * width, width, device=slots.device).unsqueeze(1))


def _look_up(table: Tensor, at: Tensor) -> Tensor:
    return table.index_select(0, at.flatten()).view(at.shape)


class _EventTable:
    """What stands at place token * (W + R) + column of the staged writes and reads."""

    def __init__(self, chunk: int, writes: int, reads: int, device: torch.device) -> None:
        place = torch.arange(chunk * (writes + reads), device=device)
        self.token = place // (writes + reads)
        column = place - self.token * (writes + reads)
        self.is_read = column >= writes
        entry = self.token * reads + column - writes
        self.entry = torch.where(self.is_read, entry, self.token * writes + column)


def _entries(
    slots: Tensor, event: Tensor, kinds: _EventTable, bank_rows: int
) -> tuple[Tensor, Entries]:
    """The entries of one kind, given their places among the staged slots; and their slots."""
    slot = slots.gather(1, event)
    padding = slot == bank_rows
    start, stop = _ranges(_changes(slot).logical_or_(padding))
    return slot, Entries(
        entry=_look_up(kinds.entry, event),
        token=_look_up(kinds.token, event),
        row=slot.masked_fill(padding, 0),
        valid=~padding,
        start=start,
        stop=stop,
    )


def _source_start(slot: Tensor, stop: Tensor, write_slot: Tensor, writes: Entries) -> Tensor:
    """Where the group of the last write before each read starts, if it is the read's slot."""
    last = (stop - 1).clamp_min_(0)
    same = (write_slot.gather(1, last) == slot) & (stop > 0) & writes.valid.gather(1, last)
    return torch.where(same, writes.start.gather(1, last), stop)


def _reader_stop(slot: Tensor, start: Tensor, read_slot: Tensor, reads: Entries) -> Tensor:
    """Where the group of the first read after each write stops, if it is the write's slot."""
    m = read_slot.shape[1]
    first = start.clamp_max(m - 1)
    same = (read_slot.gather(1, first) == slot) & (start < m) & reads.valid.gather(1, first)
    return torch.where(same, reads.stop.gather(1, first), start)


def _changes(x: Tensor) -> Tensor:
    """True where x [N, m] differs from its left neighbour, and in the first column."""
    out = torch.ones(x.shape, dtype=torch.bool, device=x.device)
    torch.ne(x[:, 1:], x[:, :-1], out=out[:, 1:])
    return out


def _ranges(first: Tensor) -> tuple[Tensor, Tensor]:
    """Start and stop of each place's range, from the flags of the ranges' first places."""
    m = first.shape[1]
    place = torch.arange(m, device=first.device)
    start = (first * place).cummax(1).values
    # The same from the right: how far the next first place, or the end, is from the end.
    left = torch.zeros_like(start)
    torch.mul(first[:, 1:], m - place[1:], out=left[:, :-1])
    return start, m - left.flip(1).cummax(1).values.flip(1)


def run_ranges(entries: Entries) -> tuple[Tensor, Tensor]:
    """Start and stop of each entry's run: the entries of its slot and token."""
    place = torch.arange(entries.start.shape[1], device=entries.start.device)
    return _ranges(_changes(entries.token) | (entries.start == place))
