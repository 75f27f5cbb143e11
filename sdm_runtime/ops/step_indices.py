"""Index lists of the forward's step loop, for all steps of a segment at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.ops.geometry import Geometry
from sdm_runtime.ops.readback import reads_are_free
from sdm_runtime.ops.records import Groups
from sdm_runtime.ops.step_table import StepTable
from sdm_runtime.ops.timeline import Timeline
from sdm_runtime.ops.weights import Weights, staged


class Bags(NamedTuple):
    """Weighted sums of rows: per step one flat list, cut at offsets."""

    rows: Sequence[Tensor]
    weights: Sequence[Tensor]  # f32
    offsets: Sequence[Tensor]


class StepIndices(NamedTuple):
    """One tensor per step; bags hold table rows if nothing is said."""

    gather: Sequence[Tensor]  # [P*C*W] bank rows of the groups; [P*C*(W+R)] with the reads'
    residual: Bags  # {v, -keff M0} per token; then {qeff M0} per token, if read rows are fetched
    reads: Bags | None  # {qeff M0} per token, in bank rows, if they are not
    updates: Bags  # {cpe M0, pd delta ..} of every group
    update_source: Sequence[Tensor] | None  # the bag that goes to each row; None: as they stand
    update_rows: Sequence[Tensor]  # bank rows


class _Updates(NamedTuple):
    """As in StepIndices, one row per chunk; groups past the used ones repeat the first."""

    bags: Tensor
    weights: Tensor
    offsets: Tensor
    source: Tensor


def step_indices(
    geometry: Geometry, timeline: Timeline, weights: Weights, groups: Groups, table: StepTable
) -> StepIndices:
    """Build the lists of a segment's chunks."""
    steps = groups.used.shape[0] // geometry.streams
    rows = _group_rows(timeline, groups)
    updates = _updates(geometry, timeline, weights, groups, table)
    offsets, target, source = _update_targets(rows, updates, groups, steps)
    gather, residual, reads = _fetches(geometry, timeline, weights, groups, table, rows)
    return StepIndices(
        gather=gather,
        residual=residual,
        reads=reads,
        updates=Bags(
            _by_step(updates.bags, steps).unbind(0),
            _by_step(updates.weights, steps).unbind(0),
            offsets,
        ),
        update_source=source,
        update_rows=target,
    )


def _fetches(
    geometry: Geometry,
    timeline: Timeline,
    weights: Weights,
    groups: Groups,
    table: StepTable,
    rows: Tensor,
) -> tuple[Sequence[Tensor], Bags, Bags | None]:
    """What a step gathers, and its sums of rows as they were before the step."""
    steps = groups.used.shape[0] // geometry.streams
    tokens = geometry.streams * geometry.chunk
    reads = timeline.reads
    # A padding read takes some row of its chunk: its weight is 0, and nothing looks at the sum.
    read_rows = staged(torch.where(reads.valid, reads.row, rows[:, :1]), reads)
    read_weights = staged(torch.where(reads.valid, weights.qeff, 0), reads)
    of_reads = [_by_step(x, steps) for x in (read_rows, read_weights)]
    of_writes = _residual_bags(geometry, timeline, weights, groups, table)
    gather = _by_step(rows, steps)
    places = torch.arange(tokens, device=rows.device)
    writes_at, reads_at = places * (1 + geometry.writes), places * geometry.reads
    if table.read_offset is None:
        residual = Bags(of_writes[0].unbind(0), of_writes[1].unbind(0), (writes_at,) * steps)
        read_bags = Bags(of_reads[0].unbind(0), of_reads[1].unbind(0), (reads_at,) * steps)
        return gather.unbind(0), residual, read_bags
    gather = torch.cat((gather, of_reads[0]), 1)
    place = torch.arange(of_reads[0].shape[1], device=rows.device).expand_as(of_reads[0])
    fetched = torch.cat((of_writes[0], place + (table.group_row + table.read_offset)), 1)
    both = torch.cat((of_writes[1], of_reads[1]), 1)
    offsets = torch.cat((writes_at, tokens * (1 + geometry.writes) + reads_at))
    return gather.unbind(0), Bags(fetched.unbind(0), both.unbind(0), (offsets,) * steps), None


def _group_rows(timeline: Timeline, groups: Groups) -> Tensor:
    """Bank row of every group ordinal; ordinals past the used ones repeat ordinal 0."""
    writes = timeline.writes
    row = torch.where(writes.valid, writes.row, writes.row[:, :1]).to(torch.int64)
    return row[:, :1].expand_as(row).clone().scatter_(1, groups.ordinal, row)


def _residual_bags(
    geometry: Geometry, timeline: Timeline, weights: Weights, groups: Groups, table: StepTable
) -> tuple[Tensor, Tensor]:
    """Table rows and weights of v and the written slots: [steps, P*C bags of (1 + W)]."""
    writes = timeline.writes
    chunk = torch.arange(groups.ordinal.shape[0], device=groups.ordinal.device).unsqueeze(1)
    group = _group_row(geometry, table, chunk) + groups.ordinal
    group = torch.where(writes.valid, group, table.zero_row)
    keff = torch.where(writes.valid, weights.keff, 0)
    tokens = chunk.shape[0] * geometry.chunk
    v_row = torch.arange(table.v_row, table.v_row + tokens, device=chunk.device).unsqueeze(1)
    bags = torch.cat((v_row, staged(group, writes).view(tokens, -1)), 1)
    minus = torch.cat((keff.new_ones(tokens, 1), -staged(keff, writes).view(tokens, -1)), 1)
    steps = chunk.shape[0] // geometry.streams
    return _by_step(bags, steps), _by_step(minus, steps)


def _group_row(geometry: Geometry, table: StepTable, chunk: Tensor) -> Tensor:
    """Table row of each chunk's first group."""
    step, stream = chunk // geometry.streams, chunk % geometry.streams
    return table.group_row + step * table.stride + stream * geometry.chunk_writes


def _updates(
    geometry: Geometry, timeline: Timeline, weights: Weights, groups: Groups, table: StepTable
) -> _Updates:
    """Per chunk 2*C*W places: each group's own row, then its tokens' deltas, then zero rows."""
    writes, ordinal = timeline.writes, groups.ordinal
    chunks, n = ordinal.shape
    device = ordinal.device
    chunk = torch.arange(chunks, device=device).unsqueeze(1)
    place = torch.arange(n, device=device)
    stream_row = (chunk % geometry.streams) * n
    used = groups.used.unsqueeze(1)

    # Padding entries write group 0's own values once more, or zero rows behind all groups.
    head_at = torch.where(writes.valid, writes.start + ordinal, 0)
    head_row = _group_row(geometry, table, chunk) + ordinal
    head_weight = torch.where(writes.valid, weights.total, weights.total[:, :1])
    entry_at = place + 1 + torch.where(writes.valid, ordinal, used - 1)
    entry_row = table.v_row + chunk * geometry.chunk + writes.token
    entry_row = torch.where(writes.valid, entry_row, table.zero_row)
    entry_weight = torch.where(writes.valid, weights.pd, 0)

    bags = torch.full((chunks, 2 * n), table.zero_row, dtype=torch.int64, device=device)
    bags.scatter_(1, head_at, head_row).scatter_(1, entry_at, entry_row)
    bag_weights = torch.zeros((chunks, 2 * n), dtype=torch.float32, device=device)
    bag_weights.scatter_(1, head_at, head_weight).scatter_(1, entry_at, entry_weight)

    end = writes.valid.sum(1, keepdim=True) + used
    offsets = end.expand_as(ordinal).clone().scatter_(1, ordinal, head_at)
    return _Updates(
        bags,
        bag_weights,
        offsets=offsets + 2 * stream_row,
        source=torch.where(place < used, place, 0) + stream_row,
    )


def _update_targets(
    rows: Tensor, updates: _Updates, groups: Groups, steps: int
) -> tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor] | None]:
    """Offsets of the bags, the bank rows they go to, and which bag goes to which row.

    On the CPU only the used groups are left. Elsewhere their number would have to be read back:
    every ordinal stays, and the unused ones write the first group's new row once more.
    """
    if not reads_are_free(rows):
        lists = (updates.offsets, rows, updates.source)
        offsets, target, source = (_by_step(x, steps).unbind(0) for x in lists)
        return offsets, target, source
    used = torch.arange(rows.shape[1]) < groups.used.unsqueeze(1)
    sizes = groups.used.view(steps, -1).sum(1).tolist()
    return torch.split(updates.offsets[used], sizes), torch.split(rows[used], sizes), None


def _by_step(x: Tensor, steps: int) -> Tensor:
    """[steps * P, m] as [steps, P * m]."""
    return x.reshape(steps, -1)
