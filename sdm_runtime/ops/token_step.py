"""One step token by token, where its chunked form met a NaN or an infinity.

Matrix products spread a NaN over the chunk (0 * NaN = NaN) to tokens that share no slot with it,
and large values can overflow in them alone. Such a step is run again as the recurrence says, so
that what is not finite comes out where the recurrence puts it. The check reads a value back, which
a device would have to wait for: it is made on the CPU only. The backward of such a step stays in
its chunked form: its NaNs stand at least where the recurrence's are.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.ops.geometry import Geometry
from sdm_runtime.ops.records import Groups
from sdm_runtime.ops.segment_state import SegmentState
from sdm_runtime.ops.weights import staged


class TokenStep(NamedTuple):
    """What the chunked form would have computed, f32."""

    innovation: Tensor  # [P, C, hd]: v minus the bank's answer at the token
    delta: Tensor  # [P, C, hd]
    readings: Tensor  # [P, C, hd]
    rows: Tensor  # [used groups of all streams, hd], their rows after the step


def all_finite(*tensors: Tensor) -> bool:
    """Whether no element is NaN or infinite (a sum that overflows counts as infinite)."""
    return bool(torch.isfinite(sum((x.sum() for x in tensors), torch.zeros(()))))


def run_token_step(
    step: int,
    bank: Tensor,
    rows: Tensor,
    v: Tensor,
    state: SegmentState,
    groups: Groups,
    geometry: Geometry,
) -> TokenStep:
    """Run step `step` of the segment.

    Bank is as it was before the step, rows [P, C*W, hd] f32 holds its written groups' rows, and v
    is the segment's, [N, C, hd].
    """
    p, c, n = geometry.streams, geometry.chunk, geometry.chunk_writes
    here = slice(step * p, (step + 1) * p)
    chunks = state.chunks
    slot, source = _places(state, groups, n)
    slot, source = slot[here].view(p, c, -1), source[here].view(p, c, -1)
    old = bank[chunks.q_rows[here].long()].to(torch.float32)

    # One more row takes the padding's writes.
    now = torch.cat((rows, rows.new_zeros(p, 1, rows.shape[2])), 1)
    k, q, g, beta = chunks.k[here], chunks.q[here], chunks.g[here], chunks.beta[here]
    innovation = torch.empty((p, c, rows.shape[2]), dtype=torch.float32)
    readings = torch.empty_like(innovation)
    for t in range(c):
        at = slot[:, t].unsqueeze(2).expand(-1, -1, rows.shape[2])
        log_decay = rows.new_zeros(p, n + 1).scatter_add_(1, slot[:, t], g[:, t])
        written = now.gather(1, at) * log_decay.gather(1, slot[:, t]).exp().unsqueeze(2)
        now.scatter_(1, at, written)
        innovation[:, t] = v[here][:, t] - (k[:, t].unsqueeze(2) * written).sum(1)
        delta = beta[:, t, None] * innovation[:, t]
        now.scatter_add_(1, at, k[:, t].unsqueeze(2) * delta.unsqueeze(1))
        seen = source[:, t].unsqueeze(2)
        row = now.gather(1, seen.clamp_min(0).expand(-1, -1, rows.shape[2]))
        row = torch.where(seen >= 0, row, old[:, t])
        readings[:, t] = (q[:, t].unsqueeze(2) * row).sum(1)
    used = torch.arange(n) < groups.used[here].unsqueeze(1)
    return TokenStep(innovation, beta.unsqueeze(2) * innovation, readings, now[:, :n][used])


def _places(state: SegmentState, groups: Groups, n: int) -> tuple[Tensor, Tensor]:
    """Each staged write's group (n: padding), and the group each staged read sees (-1: none)."""
    timeline = state.timeline
    slot = torch.where(timeline.writes.valid, groups.ordinal, n)
    seen = timeline.source_stop > timeline.source_start
    group = groups.ordinal.gather(1, (timeline.source_stop - 1).clamp_min(0))
    source = torch.where(seen, group, -1)
    return staged(slot, timeline.writes), staged(source, timeline.reads)
