"""One step token by token, where its chunked form met a NaN or an infinity.

Matrix products spread a NaN over the chunk (0 * NaN = NaN) to tokens that share no slot with it,
and large values can overflow in them alone. Such a step is run again as the recurrence says, so
that what is not finite comes out where the recurrence puts it. The check reads a value back, which
a device would have to wait for: it is made on the CPU only. The backward of such a step stays in
its chunked form: its NaNs stand at least where the recurrence's are.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.ops.call.geometry import Geometry, Segment
from sdm_runtime.ops.call.staging import Inputs, stage_chunks
from sdm_runtime.ops.chunks.chunk_kernels import ChunkEvents
from sdm_runtime.ops.chunks.records import INVALID, group_rows

_READ = 1 << 29  # bit of an event's word


class TokenStep(NamedTuple):
    """What the chunked form would have computed, f32."""

    innovation: Tensor  # [P, C, hd]: v minus the bank's answer at the token
    delta: Tensor  # [P, C, hd]
    readings: Tensor  # [P, C, hd]
    bank_rows: Tensor  # int64 [groups of all sequences]: which rows the step writes
    rows: Tensor  # [groups of all sequences, hd]: those rows after the step


def all_finite(*tensors: Tensor) -> bool:
    """Whether no element is NaN or infinite (a sum that overflows counts as infinite)."""
    return all(math.isfinite(x.sum().item()) for x in tensors)


def run_token_step(
    step: int,
    bank: Tensor,
    v: Tensor,
    inputs: Inputs,
    events: ChunkEvents,
    updates: Tensor,
    geometry: Geometry,
) -> TokenStep:
    """Run step `step` of the call.

    Bank is as it was before the step; v [P, C, hd], the events and the updates, write entries
    sorted by slot int32 [P, C*W, 4], are the step's.
    """
    p, c, n = geometry.sequences, geometry.chunk, geometry.chunk_writes
    chunks = stage_chunks(inputs, geometry, Segment(step, step + 1), bank.dtype)
    slot, source = _places(events, geometry)
    bank_rows, written = group_rows(updates)
    rows = bank[bank_rows].to(torch.float32)
    old = bank[chunks.q_rows].to(torch.float32)

    # One more row takes the padding's writes.
    now = torch.cat((rows, rows.new_zeros(p, 1, rows.shape[2])), 1)
    k, q, g, beta = chunks.k, chunks.q, chunks.g, chunks.beta
    innovation = rows.new_empty((p, c, rows.shape[2]))
    readings = torch.empty_like(innovation)
    for t in range(c):
        at = slot[:, t].unsqueeze(2).expand(-1, -1, rows.shape[2])
        log_decay = rows.new_zeros(p, n + 1)
        _add_in_order(log_decay, slot[:, t], g[:, t])
        decayed = now.gather(1, at) * log_decay.gather(1, slot[:, t]).exp().unsqueeze(2)
        now.scatter_(1, at, decayed)
        innovation[:, t] = v[:, t] - (k[:, t].unsqueeze(2) * decayed).sum(1)
        delta = beta[:, t, None] * innovation[:, t]
        _add_in_order(now, slot[:, t], k[:, t].unsqueeze(2) * delta.unsqueeze(1))
        seen = source[:, t].unsqueeze(2)
        row = now.gather(1, seen.clamp_min(0).expand(-1, -1, rows.shape[2]))
        row = torch.where(seen >= 0, row, old[:, t])
        readings[:, t] = (q[:, t].unsqueeze(2) * row).sum(1)
    delta = beta.unsqueeze(2) * innovation
    return TokenStep(innovation, delta, readings, bank_rows[written], now[:, :n][written])


def _add_in_order(rows: Tensor, slots: Tensor, values: Tensor) -> None:
    """rows[p, slots[p, w]] += values[p, w], w = 0, 1, ..: a token may name a slot twice.

    Scatter operations that add do so in any order on some devices.
    """
    sequence = torch.arange(slots.shape[0], device=slots.device)
    for w in range(slots.shape[1]):
        at = sequence, slots[:, w]
        rows[at] = rows[at] + values[:, w]


def _places(events: ChunkEvents, geometry: Geometry) -> tuple[Tensor, Tensor]:
    """Each staged write's group [P, C, W] (C*W: padding); the group each read sees (-1: none)."""
    word = events.events.view(torch.int32)[..., 3]
    place = torch.arange(word.shape[1], device=word.device)
    write = (word & (_READ | INVALID)) == 0
    start = torch.where(word < 0, place, 0).cummax(1).values
    last_write = torch.where(write, place, -1).cummax(1).values
    opens = write & (torch.nn.functional.pad(last_write, (1, -1), value=-1) < start)
    group = torch.where(last_write < start, -1, opens.cumsum(1) - 1)
    places = torch.where(events.places < 0, ~events.places, events.places).long()
    staged = group.gather(1, places).view(word.shape[0], geometry.chunk, -1)
    slot, source = staged[..., : geometry.writes], staged[..., geometry.writes :]
    return torch.where(slot < 0, geometry.chunk_writes, slot), source
