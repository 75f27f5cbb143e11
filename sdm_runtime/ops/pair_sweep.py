"""Same-slot pairs by token distance: fixed sizes, no scatter, nothing read back to the host.

At distance d an entry of token t looks for its slot's partner at token t - d (or t + d): one step
of a pointer that walks the slot's sorted list. Entries of one slot and token act as one partner
with their summed weight, so a step never visits more than one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.ops.log_sums import segmented_cumsum
from sdm_runtime.ops.pair_sides import PairSide
from sdm_runtime.ops.timeline import run_ranges


class _Partners(NamedTuple):
    token: Tensor  # [N, m]
    log: Tensor  # f64
    weight: Tensor  # f64, summed over the run
    next_run: Tensor  # place after (or before) the run, in walking direction


def matrix(later: PairSide, writes: PairSide, chunk: int) -> Tensor:
    """Sum each pair's weights and decay into its cell: [N, C, C] f32."""
    count = later.weight.shape[0]
    out = torch.zeros((count, chunk, chunk), dtype=torch.float32, device=later.weight.device)
    weight, log, token, (start, stop) = _by_token(later, chunk)
    for distance, factor in _walk_back(token, log, start, stop, _partners(writes, -1), chunk):
        diagonal = (weight * factor).view(count, chunk, -1).sum(2)
        out.diagonal(-distance, 1, 2).copy_(diagonal[:, distance:])
    return out


def gradient(later: PairSide, writes: PairSide, d_matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the later side's and the writes' weights for d_matrix [N, C, C], in f64."""
    chunk, f64 = d_matrix.shape[1], torch.float64
    d_later = torch.zeros_like(later.weight, dtype=f64)
    d_write = torch.zeros_like(writes.weight, dtype=f64)
    token = later.entries.token
    walk = _walk_back(token, later.log, *later.past, _partners(writes, -1), chunk)
    for distance, factor in walk:
        d_later += factor * _from_diagonal(d_matrix, distance, 0, token)
    token = writes.entries.token
    walk = _walk_on(token, writes.log, *later.future, _partners(later, 1), chunk)
    for distance, factor in walk:
        d_write += factor * _from_diagonal(d_matrix, distance, distance, token)
    return d_later, d_write


def _from_diagonal(d_matrix: Tensor, distance: int, shift: int, token: Tensor) -> Tensor:
    """For each entry the cell (t, t - distance) with t = its token + shift; 0 past the chunk."""
    count, chunk, _ = d_matrix.shape
    line = torch.zeros((count, chunk), dtype=d_matrix.dtype, device=d_matrix.device)
    diagonal = d_matrix.diagonal(-distance, 1, 2)
    if shift:
        line[:, : chunk - distance] = diagonal
    else:
        line[:, distance:] = diagonal
    return line.gather(1, token)


def _walk_back(
    token: Tensor, log: Tensor, start: Tensor, stop: Tensor, partners: _Partners, chunk: int
) -> Iterator[tuple[int, Tensor]]:
    """For d = 0, 1, ..: weight times decay of each entry's partner at token - d, or 0."""
    pointer = stop - 1
    for distance in range(chunk):
        at = pointer.clamp_min(0)
        hit = (pointer >= start) & (partners.token.gather(1, at) == token - distance)
        decay = (log - partners.log.gather(1, at)).to(torch.float32).exp()
        yield distance, torch.where(hit, partners.weight.gather(1, at) * decay, 0)
        pointer = torch.where(hit, partners.next_run.gather(1, at), pointer)


def _walk_on(
    token: Tensor, log: Tensor, start: Tensor, stop: Tensor, partners: _Partners, chunk: int
) -> Iterator[tuple[int, Tensor]]:
    """For d = 0, 1, ..: weight times decay of each write's later partner at token + d, or 0."""
    pointer = start
    last = partners.token.shape[1] - 1
    for distance in range(chunk):
        at = pointer.clamp_max(last)
        hit = (pointer < stop) & (partners.token.gather(1, at) == token + distance)
        decay = (partners.log.gather(1, at) - log).to(torch.float32).exp()
        yield distance, torch.where(hit, partners.weight.gather(1, at) * decay, 0)
        pointer = torch.where(hit, partners.next_run.gather(1, at), pointer)


def _partners(side: PairSide, direction: int) -> _Partners:
    entries = side.entries
    run_start, run_stop = run_ranges(entries)
    running = segmented_cumsum(side.weight.to(torch.float64), run_start)
    total = running.gather(1, run_stop - 1)
    next_run = run_start - 1 if direction < 0 else run_stop
    return _Partners(entries.token, side.log, total, next_run)


def _by_token(side: PairSide, chunk: int) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor]]:
    """The side's weight, log, token and past in staged order, so that a token's entries adjoin."""
    entry = side.entries.entry

    def staged(x: Tensor) -> Tensor:
        return torch.empty_like(x).scatter_(1, entry, x)

    start, stop = side.past
    width = entry.shape[1] // chunk
    place = torch.arange(entry.shape[1], device=entry.device)
    token = (place // width).expand_as(entry)
    return staged(side.weight), staged(side.log), token, (staged(start), staged(stop))
