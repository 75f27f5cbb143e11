"""The step loop's view of its index lists: one tensor per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.ops.chunk_kernels import StepLists
from sdm_runtime.ops.geometry import Geometry
from sdm_runtime.ops.readback import reads_are_free


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


def step_indices(lists: StepLists, geometry: Geometry) -> StepIndices:
    """Cut a segment's lists into its steps."""
    groups = geometry.streams * geometry.chunk_writes
    residual, reads = _fetches(lists, geometry)
    offsets, rows, source = _update_targets(lists, groups)
    return StepIndices(
        gather=lists.gather.unbind(0),
        residual=residual,
        reads=reads,
        updates=Bags(lists.update_bags.unbind(0), lists.update_weights.unbind(0), offsets),
        update_source=source,
        update_rows=rows,
    )


def _fetches(lists: StepLists, geometry: Geometry) -> tuple[Bags, Bags | None]:
    """A step's sums of rows as they were before the step."""
    tokens, device = geometry.streams * geometry.chunk, lists.bags.device
    cut = tokens * (1 + geometry.writes)
    offsets = torch.arange(0, cut, 1 + geometry.writes, device=device)
    reads_at = torch.arange(0, tokens * geometry.reads, geometry.reads, device=device)
    steps = lists.bags.shape[0]
    bags, weights = lists.bags, lists.bag_weights
    if lists.gather.shape[1] > tokens * geometry.writes:  # the read rows are in the table too
        both = torch.cat((offsets, cut + reads_at))
        return Bags(bags.unbind(0), weights.unbind(0), (both,) * steps), None
    residual = Bags(bags[:, :cut].unbind(0), weights[:, :cut].unbind(0), (offsets,) * steps)
    read_bags = Bags(bags[:, cut:].unbind(0), weights[:, cut:].unbind(0), (reads_at,) * steps)
    return residual, read_bags


def _update_targets(
    lists: StepLists, groups: int
) -> tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor] | None]:
    """Offsets of the bags, the bank rows they go to, and which bag goes to which row.

    On the CPU only the used groups are left. Elsewhere their number would have to be read back:
    every ordinal stays, and the unused ones write the first group's new row once more.
    """
    rows, offsets = lists.gather[:, :groups], lists.update_offsets
    if not reads_are_free(rows):
        return offsets.unbind(0), rows.unbind(0), lists.update_sources.unbind(0)
    steps, chunks = rows.shape[0], lists.used.shape[0]
    place = torch.arange(groups * steps // chunks)
    used = (place < lists.used.unsqueeze(1)).view(steps, -1)
    sizes = used.sum(1).tolist()
    return torch.split(offsets[used], sizes), torch.split(rows[used], sizes), None
