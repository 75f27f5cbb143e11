"""Every chunk's writes and reads in one stable order by slot: who shares a slot with whom.

One sort per chunk puts the writes and reads of a slot into one group, in token order, a token's
writes before its reads. Everything later (log sums, pairs, records) is ranges in that order.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# Sorts after every bank row (there are fewer than 2^31 - 1 of them).
_PADDING_SLOT = 2**31 - 1


class Entries(NamedTuple):
    """A chunk's writes (or reads) sorted by slot; every field is [N, entries] int64.

    Ranges are half open. A group is the entries of one slot, a run those of one slot and token;
    every padding entry is a group of its own, behind all others.
    """

    position: Tensor  # place among the writes and reads together
    entry: Tensor  # token * width + column: place in the staged inputs
    token: Tensor
    row: Tensor  # absolute bank row, 0 for padding
    valid: Tensor  # bool
    start: Tensor  # group, as places in this list
    stop: Tensor
    run_start: Tensor
    run_stop: Tensor
    other_start: Tensor  # of a write: the reads that see it; of a read: the writes it sees
    other_stop: Tensor


class Timeline(NamedTuple):
    """Both sorted lists, and the order that rebuilds them without another sort."""

    writes: Entries
    reads: Entries
    order: Tensor  # [N, C * (W + R)] int64
    start: Tensor  # group of each place among writes and reads together
    stop: Tensor


def build_timeline(
    k_rows: Tensor, q_rows: Tensor, valid: Tensor, order: Tensor | None = None
) -> Timeline:
    """Sort rows k [N, C, W] and q [N, C, R] int32, or take the order of an earlier sort."""
    count, chunk, writes = k_rows.shape
    width = writes + q_rows.shape[2]
    rows = torch.cat((k_rows, q_rows), 2)
    slots = rows.masked_fill(~valid.unsqueeze(2), _PADDING_SLOT).view(count, chunk * width)
    if order is None:
        slots, order = torch.sort(slots, dim=1, stable=True)
    else:
        slots = slots.gather(1, order)
    token = order // width
    column = order - token * width
    is_write = column < writes

    padding = slots == _PADDING_SLOT
    first = _changes(slots) | padding
    run_first = first | _changes(token) | _changes(is_write)
    start, stop = _ranges(first)
    run_start, run_stop = _ranges(run_first)

    written = _exclusive_count(is_write)
    place = torch.arange(order.shape[1], device=order.device).expand_as(order)
    written_here = written[:, :-1]
    rank = torch.where(is_write, written_here, chunk * writes + place - written_here)
    position = torch.empty_like(order).scatter_(1, rank, place)

    row = slots.to(torch.int64).masked_fill(padding, 0)
    entry = torch.where(is_write, token * writes + column, 0)
    entry = torch.where(is_write, entry, token * (width - writes) + column - writes)
    at = [written.gather(1, x) for x in (start, stop, run_start, run_stop)]
    places = (start, stop, run_start, run_stop)
    # Reads before a place = the place minus the writes before it.
    read_at = [x - w for x, w in zip(places, at, strict=True)]
    common = (entry, token, row, ~padding)
    reads_here = place - written_here
    write_part, read_part = position[:, : chunk * writes], position[:, chunk * writes :]
    return Timeline(
        writes=_take(write_part, (*common, *at, reads_here, read_at[1])),
        reads=_take(read_part, (*common, *read_at, at[0], written_here)),
        order=order,
        start=start,
        stop=stop,
    )


def _take(position: Tensor, fields: tuple[Tensor, ...]) -> Entries:
    return Entries(position, *(x.gather(1, position) for x in fields))


def _changes(x: Tensor) -> Tensor:
    """True where x [N, m] differs from its left neighbour, and in the first column."""
    out = torch.ones(x.shape, dtype=torch.bool, device=x.device)
    torch.ne(x[:, 1:], x[:, :-1], out=out[:, 1:])
    return out


def _ranges(first: Tensor) -> tuple[Tensor, Tensor]:
    """Start and stop of each place's range, from the flags of the ranges' first places."""
    m = first.shape[1]
    place = torch.arange(m, device=first.device).expand_as(first)
    start = torch.where(first, place, 0).cummax(1).values
    last = torch.ones_like(first)
    last[:, :-1] = first[:, 1:]
    stop = torch.where(last, place + 1, m).flip(1).cummin(1).values.flip(1)
    return start, stop


def _exclusive_count(flags: Tensor) -> Tensor:
    """How many flags are set before each place: [N, m + 1] int64."""
    out = torch.zeros((flags.shape[0], flags.shape[1] + 1), dtype=torch.int64, device=flags.device)
    torch.cumsum(flags, 1, out=out[:, 1:])
    return out
