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
        value = weight[block.later] * write_weight[block.earlier] * block.decay
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
        scaled = (flat[block.cell] * block.decay).to(f64)
        d_later.index_add_(0, block.later, scaled * write_weight[block.earlier])
        d_write.index_add_(0, block.earlier, scaled * weight[block.later])
    return d_later.view_as(later.weight), d_write.view_as(writes.weight)


def _blocks(later: PairSide, writes: PairSide, chunk: int) -> Iterator[_Block]:
    """All pairs, later entry by later entry, in blocks of bounded size."""
    start, stop = later.past
    count, per_chunk = writes.weight.shape
    device = start.device
    bases = torch.arange(count, device=device).unsqueeze(1)
    first_write = (start + bases * per_chunk).flatten()
    row_cell = ((bases * chunk + later.entries.token) * chunk).flatten()
    log, write_log = later.log.flatten(), writes.log.flatten()
    write_token = writes.entries.token.flatten()
    lengths = (stop - start).flatten()
    places = lengths.nonzero().squeeze(1)
    lengths = lengths[places]
    ends = lengths.cumsum(0)
    for rows in _row_blocks(ends):
        length, place = lengths[rows], places[rows]
        end = ends[rows]
        origin = end[0] - length[0]
        entry = torch.repeat_interleave(place, length)
        shift = first_write[place] - (end - length - origin)
        earlier = torch.repeat_interleave(shift, length)
        earlier += torch.arange(earlier.shape[0], device=device)
        decay = (log[entry] - write_log[earlier]).to(torch.float32).exp_()
        yield _Block(entry, earlier, row_cell[entry] + write_token[earlier], decay)


def _row_blocks(ends: Tensor) -> Iterator[slice]:
    """Cut the entries where their running number of pairs passes a multiple of the block size."""
    total = int(ends[-1]) if ends.shape[0] else 0
    marks = torch.tensor(range(_BLOCK_PAIRS, total, _BLOCK_PAIRS), dtype=torch.int64)
    cuts = [0, *torch.searchsorted(ends, marks).tolist(), ends.shape[0]]
    for begin, end in pairwise(cuts):
        if begin < end:
            yield slice(begin, end)
