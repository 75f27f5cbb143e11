"""Index lists of the forward's step loop, for all steps of a segment at once.

The loop's table (f32 rows of hd) holds, one after another:

    [0, v_rows)          v, overwritten by delta as the steps run; row = chunk * C + token
    [v_rows, + P*C*W)    the step's written slots before the step, one row per group
    [.., + P*C*R)        the step's read rows before the step
    the last row         zeros, where padding points: a weight of 0 would keep a NaN
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.ops.geometry import Geometry, Segment
from sdm_runtime.ops.records import Groups
from sdm_runtime.ops.timeline import Timeline
from sdm_runtime.ops.weights import Weights, staged


class StepIndices(NamedTuple):
    """Leading dimension: the segment's steps. Bags are flat lists cut at offsets."""

    gather: Tensor  # [steps, P*C*(W+R)] bank rows: of the groups, then of the reads
    residual_bags: Tensor  # [steps, P*C*(1+W+R)] table rows: v - keff M0, then qeff M0
    residual_weights: Tensor  # f32
    residual_offsets: Tensor  # [2*P*C], the same for every step
    update_bags: Tensor  # [steps, 2*P*C*W] table rows: cpe M0 + pd delta of every group
    update_weights: Tensor  # f32
    update_offsets: Tensor  # [steps, P*C*W]
    update_source: Tensor  # [steps, P*C*W] bag whose sum goes to the bank row
    update_rows: Tensor  # [steps, P*C*W] bank rows; unused ones repeat the chunk's first group


class Table(NamedTuple):
    """Row numbers of the loop's table."""

    v_row: int  # row of the segment's first token
    group_row: int
    read_row: int
    zero_row: int

    @staticmethod
    def layout(geometry: Geometry, steps: int, first_step: int) -> Table:
        """The table of `steps` steps, of which the segment starts at first_step."""
        group_row = steps * geometry.streams * geometry.chunk
        read_row = group_row + geometry.streams * geometry.chunk_writes
        zero_row = read_row + geometry.streams * geometry.chunk_reads
        return Table(first_step * geometry.streams * geometry.chunk, group_row, read_row, zero_row)


def step_indices(
    geometry: Geometry,
    segment: Segment,
    timeline: Timeline,
    weights: Weights,
    groups: Groups,
    table: Table,
) -> StepIndices:
    """Build the lists of a segment; sizes depend on shapes alone."""
    steps = segment.steps
    rows = _group_rows(timeline, groups)
    residual_bags, residual_weights = _residual_bags(geometry, timeline, weights, groups, table)
    bags, bag_weights, offsets, source = _update_bags(geometry, timeline, weights, groups, table)
    reads = timeline.reads
    # A padding read fetches some row of the chunk; nothing looks at it.
    read_row = torch.where(reads.valid, reads.row, rows[:, :1])
    return StepIndices(
        gather=torch.cat((_by_step(rows, steps), _by_step(staged(read_row, reads), steps)), 1),
        residual_bags=residual_bags,
        residual_weights=residual_weights,
        residual_offsets=_residual_offsets(geometry, rows.device),
        update_bags=_by_step(bags, steps),
        update_weights=_by_step(bag_weights, steps),
        update_offsets=_by_step(offsets, steps),
        update_source=_by_step(source, steps),
        update_rows=_by_step(rows, steps),
    )


def _group_rows(timeline: Timeline, groups: Groups) -> Tensor:
    """Bank row of every group ordinal; ordinals past the used ones repeat ordinal 0."""
    writes = timeline.writes
    head = writes.row[:, :1]
    row = torch.where(writes.valid, writes.row, head)
    return head.expand_as(row).clone().scatter_(1, groups.ordinal, row)


def _residual_bags(
    geometry: Geometry, timeline: Timeline, weights: Weights, groups: Groups, table: Table
) -> tuple[Tensor, Tensor]:
    """Per step: P*C bags {v, W groups} and P*C bags of R read rows."""
    writes, reads = timeline.writes, timeline.reads
    chunks, (p, c) = groups.ordinal.shape[0], (geometry.streams, geometry.chunk)
    steps = chunks // p
    stream = (torch.arange(chunks, device=groups.ordinal.device) % p).unsqueeze(1)
    group = table.group_row + stream * geometry.chunk_writes + groups.ordinal
    group = torch.where(writes.valid, group, table.zero_row)
    keff = torch.where(writes.valid, weights.keff, 0)
    read = table.read_row + stream * geometry.chunk_reads + reads.entry
    read = torch.where(reads.valid, read, table.zero_row)
    qeff = torch.where(reads.valid, weights.qeff, 0)

    rows = torch.arange(chunks * c, device=stream.device) + table.v_row
    split = (steps, p * c, geometry.writes)
    bags = torch.cat((rows.view(steps, p * c, 1), staged(group, writes).view(split)), 2)
    minus = torch.cat((keff.new_ones(steps, p * c, 1), -staged(keff, writes).view(split)), 2)
    return (
        torch.cat((bags.flatten(1), _by_step(staged(read, reads), steps)), 1),
        torch.cat((minus.flatten(1), _by_step(staged(qeff, reads), steps)), 1),
    )


def _residual_offsets(geometry: Geometry, device: torch.device) -> Tensor:
    rows = torch.arange(geometry.streams * geometry.chunk, device=device)
    first_read = rows.shape[0] * (1 + geometry.writes)
    return torch.cat((rows * (1 + geometry.writes), first_read + rows * geometry.reads))


def _update_bags(
    geometry: Geometry, timeline: Timeline, weights: Weights, groups: Groups, table: Table
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Per chunk 2*C*W places: each group's own row, then its tokens' deltas, then zero rows."""
    writes, ordinal = timeline.writes, groups.ordinal
    chunks, n = ordinal.shape
    device = ordinal.device
    chunk = torch.arange(chunks, device=device).unsqueeze(1)
    place = torch.arange(n, device=device).expand_as(ordinal)
    stream = chunk % geometry.streams

    # Padding entries write group 0's own values once more, or zero rows behind all groups.
    head_at = torch.where(writes.valid, writes.start + ordinal, 0)
    head_row = table.group_row + stream * n + ordinal
    head_weight = torch.where(writes.valid, weights.total, weights.total[:, :1])
    used = groups.used.unsqueeze(1)
    entry_at = place + 1 + torch.where(writes.valid, ordinal, used - 1)
    entry_row = table.v_row + chunk * geometry.chunk + writes.token
    entry_row = torch.where(writes.valid, entry_row, table.zero_row)
    entry_weight = torch.where(writes.valid, weights.pd, 0)

    bags = torch.full((chunks, 2 * n), table.zero_row, dtype=torch.int64, device=device)
    bags.scatter_(1, head_at, head_row).scatter_(1, entry_at, entry_row)
    bag_weights = torch.zeros((chunks, 2 * n), dtype=torch.float32, device=device)
    bag_weights.scatter_(1, head_at, head_weight).scatter_(1, entry_at, entry_weight)

    valid_entries = writes.valid.sum(1, keepdim=True)
    offsets = (valid_entries + used).expand_as(ordinal).clone().scatter_(1, ordinal, head_at)
    offsets += stream * (2 * n)
    source = torch.where(place < used, place, 0) + stream * n
    return bags, bag_weights, offsets, source


def _by_step(x: Tensor, steps: int) -> Tensor:
    """[steps * P, m] as [steps, P * m]."""
    return x.reshape(steps, -1)
