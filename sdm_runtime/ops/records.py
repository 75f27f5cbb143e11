"""Sorted records for the step kernels, as the spec's section 3 packs them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.ops.staging import Chunks
from sdm_runtime.ops.timeline import Entries
from sdm_runtime.ops.weights import Weights

_FIRST = -(2**31)  # bit 31 of an int32
_LAST = 1 << 30
_DISTANCE_SHIFT, _DISTANCE_MAX = 18, 4095
_INVALID = 1 << 17
_TOKEN_SHIFT = 9
_BLOCK = 32


class Groups(NamedTuple):
    """Each chunk's write groups, numbered in sorted order (the dense snapshot's rows)."""

    ordinal: Tensor  # [N, C*W] int64, of the entry's group; padding gets 0
    used: Tensor  # [N] int64, number of groups that are no padding


def write_groups(writes: Entries) -> Groups:
    """Number the valid groups of each chunk."""
    first = _is_first(writes) & writes.valid
    number = first.cumsum(1)
    ordinal = torch.where(writes.valid, number - 1, 0)
    return Groups(ordinal, number[:, -1])


def payload(entries: Entries, width: int) -> Tensor:
    """The record word of each sorted entry: int32 [N, m]."""
    place = torch.arange(entries.entry.shape[1], device=entries.entry.device)
    distance = (place - entries.start).clamp_max(_DISTANCE_MAX)
    word = (distance << _DISTANCE_SHIFT) | (entries.token << _TOKEN_SHIFT)
    word |= entries.entry - entries.token * width
    word |= torch.where(entries.stop == place + 1, _LAST, 0)
    word |= torch.where(entries.valid, 0, _INVALID)
    word |= torch.where(entries.start == place, _FIRST, 0)
    return word.to(torch.int32)


def write_records(
    writes: Entries, kpay: Tensor, weights: Weights, chunks: Chunks, out: Tensor
) -> None:
    """Fill out [N, C*W, 4] int32 with {payload, row, bits of -beta*keff, bits of cpe}."""
    beta = chunks.beta.gather(1, writes.token)
    scale = torch.where(writes.valid, -beta * weights.keff, 0)
    total = torch.where(writes.valid, weights.total, 1)
    _fill(out, kpay, writes.row, scale, total)


def read_records(reads: Entries, weights: Weights, width: int, out: Tensor) -> None:
    """Fill out [N, C*R, 4] int32 with {payload, row, bits of qeff, 0}."""
    scale = torch.where(reads.valid, weights.qeff, 0)
    _fill(out, payload(reads, width), reads.row, scale, torch.zeros_like(scale))


def first_counts(writes: Entries) -> Tensor:
    """bpre: valid FIRSTs before each block of 32 places, int32 [N, ceil(m / 32) + 1]."""
    first = _is_first(writes) & writes.valid
    count, m = first.shape
    blocks = -(-m // _BLOCK)
    padded = torch.zeros((count, blocks * _BLOCK), dtype=torch.int32, device=first.device)
    padded[:, :m] = first
    out = torch.zeros((count, blocks + 1), dtype=torch.int32, device=first.device)
    sums = padded.view(count, blocks, _BLOCK).sum(2, dtype=torch.int32)
    torch.cumsum(sums, 1, dtype=torch.int32, out=out[:, 1:])
    return out


def _is_first(entries: Entries) -> Tensor:
    place = torch.arange(entries.start.shape[1], device=entries.start.device)
    return entries.start == place


def _fill(out: Tensor, word: Tensor, row: Tensor, scale: Tensor, total: Tensor) -> None:
    out[..., 0] = word
    out[..., 1] = row
    out[..., 2] = scale.view(torch.int32)
    out[..., 3] = total.view(torch.int32)
