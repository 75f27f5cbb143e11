"""Same-slot pairs by enumeration: cost and memory follow the number of pairs.

Sizes depend on the data, so this is the CPU's route: reading a size elsewhere would synchronize.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.ops.pair_sides import PairSide

# Pairs held at once (about 60 bytes each); one entry's pairs are never split.
_BLOCK_PAIRS = 1 << 21


class _Block(NamedTuple):
    later: Tensor  # [pairs] flat places among the later side's entries
    earlier: Tensor  # [pairs] flat places among the writes
    cell: Tensor  # [pairs] flat cell of the [N, C, C] matrix
    decay: Tensor  # [pairs] f32, exp(log of the later one - log of the earlier one)


def matrix(later: PairSide, writes: PairSide, chunk: int) -> Tensor:
    """Sum each pair's weights and decay into its cell: [N, C, C] f32."""
    weight, write_weight = later.weight.flatten(), writes.weight.flatten()
    count = later.weight.shape[0]
    out = torch.zeros(count * chunk * chunk, dtype=torch.float32, device=weight.device)
    for block in _blocks(later, writes, chunk):
        value = _at(weight, block.later).mul_(block.decay).mul_(_at(write_weight, block.earlier))
        # One thread adds in list order on the CPU: the same bits for any thread count.
        out.index_add_(0, block.cell, value)
    return out.view(count, chunk, chunk)


def gradient(later: PairSide, writes: PairSide, d_matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the later side's and the writes' weights for d_matrix [N, C, C], in f64."""
    f64 = torch.float64
    weight, write_weight = later.weight.flatten().to(f64), writes.weight.flatten().to(f64)
    d_later, d_write = torch.zeros_like(weight), torch.zeros_like(write_weight)
    flat = d_matrix.reshape(-1)
    for block in _blocks(later, writes, d_matrix.shape[1]):
        scaled = _at(flat, block.cell).mul_(block.decay).to(f64)
        d_later.index_add_(0, block.later, _at(write_weight, block.earlier).mul_(scaled))
        d_write.index_add_(0, block.earlier, _at(weight, block.later).mul_(scaled))
    return d_later.view_as(later.weight), d_write.view_as(writes.weight)


def _at(x: Tensor, places: Tensor) -> Tensor:
    # Several times faster than x[places] on the CPU.
    return x.index_select(0, places)


def _blocks(later: PairSide, writes: PairSide, chunk: int) -> Iterator[_Block]:
    """All pairs, later entry by later entry, in blocks of bounded size."""
    start, stop = later.past
    count, per_chunk = writes.weight.shape
    bases = torch.arange(count, device=start.device).unsqueeze(1)
    lengths = (stop - start).flatten()
    places = lengths.nonzero().squeeze(1)
    # Of the entries that have pairs: how many, the first write, the matrix row, the log sum.
    lengths = _at(lengths, places)
    first_write = _at((start + bases * per_chunk).flatten(), places)
    row = _at(((bases * chunk + later.entries.token) * chunk).flatten(), places)
    log = _at(later.log.flatten(), places)
    write_log, write_token = writes.log.flatten(), writes.entries.token.flatten()
    ends = lengths.cumsum(0)
    begins = ends - lengths
    for rows in _row_blocks(ends):
        entry = torch.repeat_interleave(lengths[rows])
        # The running number of the pair, moved to where its entry's writes begin.
        shift = first_write[rows] - begins[rows]
        earlier = _at(shift, entry)
        begin = int(begins[rows.start])
        earlier += torch.arange(begin, begin + earlier.shape[0], device=start.device)
        decay = _at(log[rows], entry).sub_(_at(write_log, earlier)).to(torch.float32).exp_()
        cell = _at(row[rows], entry).add_(_at(write_token, earlier))
        yield _Block(_at(places[rows], entry), earlier, cell, decay)


def _row_blocks(ends: Tensor) -> Iterator[slice]:
    """Cut the entries where their running number of pairs passes a multiple of the block size."""
    total = int(ends[-1]) if ends.shape[0] else 0
    marks = torch.tensor(range(_BLOCK_PAIRS, total, _BLOCK_PAIRS), dtype=torch.int64)
    cuts = [0, *torch.searchsorted(ends, marks).tolist(), ends.shape[0]]
    for begin, end in pairwise(cuts):
        if begin < end:
            yield slice(begin, end)
