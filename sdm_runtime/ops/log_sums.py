"""Running sums of the log decays of each slot, in float64.

They are exponentiated, so an absolute error here is a relative error there; differences of two
sums (a decay between two tokens) are taken in float64 too, and only then rounded.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.ops.timeline import Timeline

# exp(-1000) is zero in float64 already; the clamp keeps -inf minus -inf out of the differences.
_LOG_FLOOR = -1000.0


class LogSums(NamedTuple):
    """Float64 log sums over each slot's writes (spec section 2), in the timeline's sorted lists."""

    write: Tensor  # [N, C*W]: L, through the write's token
    total: Tensor  # [N, C*W]: Ltot of the write's slot
    read: Tensor  # [N, C*R]: LQ, through the read's token


def log_sums(g: Tensor, timeline: Timeline) -> LogSums:
    """Sum g [N, C, W] f32 along each slot's writes."""
    writes, reads = timeline.writes, timeline.reads
    steps = g.flatten(1).gather(1, writes.entry).to(torch.float64).clamp_min(_LOG_FLOOR)
    merged = torch.zeros(timeline.order.shape, dtype=torch.float64, device=g.device)
    merged.scatter_(1, writes.position, steps)
    sums = segmented_cumsum(merged, timeline.start)
    # A token that writes a slot twice decays it by both gates before either write.
    write = sums.gather(1, writes.position).gather(1, writes.run_stop - 1)
    return LogSums(
        write=write,
        total=write.gather(1, writes.stop - 1),
        read=sums.gather(1, reads.position),
    )


def segmented_cumsum(x: Tensor, start: Tensor) -> Tensor:
    """Inclusive sums of x [..., N, m] from each place's range start [N, m]: a doubling scan.

    The order of additions depends on places alone, so the bits are the same on every device. Ranges
    never mix: a NaN stays in its own.
    """
    place = torch.arange(x.shape[-1], device=x.device)
    behind = place - start
    distance, longest = 1, _longest(behind)
    while distance < longest:
        inside = behind[:, distance:] >= distance
        total = x.clone()
        total[..., distance:] += torch.where(inside, x[..., :-distance], 0)
        x = total
        distance *= 2
    return x


def segmented_suffix_sum(x: Tensor, stop: Tensor) -> Tensor:
    """Inclusive sums of x [..., N, m] from each place to its range's stop [N, m] (exclusive)."""
    m = x.shape[-1]
    return segmented_cumsum(x.flip(-1), (m - stop).flip(-1)).flip(-1)


def _longest(behind: Tensor) -> int:
    """Length of the longest range: exact on the CPU, a bound where reading it would synchronize."""
    return int(behind.max()) + 1 if behind.device.type == "cpu" else behind.shape[1]
