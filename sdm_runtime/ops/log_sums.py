"""Running sums of the log decays of each slot, in float64.

They are exponentiated, so an absolute error here is a relative error there; differences of two
sums (a decay between two tokens) are taken in float64 too, and only then rounded.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.ops.readback import reads_are_free
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
    writes = timeline.writes
    steps = g.flatten(1).gather(1, writes.entry).to(torch.float64).clamp_min_(_LOG_FLOOR)
    # A token that writes a slot twice decays it by both gates before either write.
    write = segmented_cumsum(steps, writes.start).gather(1, timeline.run_stop - 1)
    source = (timeline.source_stop - 1).clamp_min_(0)
    seen = timeline.source_stop > timeline.source_start
    return LogSums(
        write=write,
        total=write.gather(1, writes.stop - 1),
        read=torch.where(seen, write.gather(1, source), 0),
    )


def segmented_cumsum(x: Tensor, start: Tensor) -> Tensor:
    """Inclusive sums of x [..., N, m] f64 from each place's range start [N, m]: a doubling scan.

    The order of additions depends on places alone, so the bits are the same on every device. Ranges
    never mix: a NaN stays in its own.
    """
    behind = torch.arange(x.shape[-1], device=x.device) - start
    distance, longest = 1, _longest(behind)
    while distance < longest:
        total = x.clone()
        total[..., distance:] += _keep(x[..., :-distance], behind[:, distance:], distance)
        x, distance = total, 2 * distance
    return x


def segmented_suffix_sum(x: Tensor, stop: Tensor) -> Tensor:
    """Inclusive sums of x [..., N, m] f64 from each place to before its range's stop [N, m]."""
    ahead = stop - torch.arange(1, x.shape[-1] + 1, device=x.device)
    distance, longest = 1, _longest(ahead)
    while distance < longest:
        total = x.clone()
        total[..., :-distance] += _keep(x[..., distance:], ahead[:, :-distance], distance)
        x, distance = total, 2 * distance
    return x


def _keep(x: Tensor, others: Tensor, distance: int) -> Tensor:
    """x where others >= distance, else 0 even for a NaN. By bits: torch.where is slow on a CPU."""
    mask = (distance - 1 - others) >> 63
    return (x.view(torch.int64) & mask).view(torch.float64)


def _longest(others: Tensor) -> int:
    """Length of the longest range: exact on the CPU, a bound where reading it would synchronize."""
    return int(others.max()) + 1 if reads_are_free(others) else others.shape[1]
