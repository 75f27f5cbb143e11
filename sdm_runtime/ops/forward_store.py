"""Buffers of the forward's segments: kept for a backward, or reused and dropped."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from sdm_runtime.ops.geometry import Geometry, Segment
from sdm_runtime.ops.quant import SnapshotFormat, encode
from sdm_runtime.ops.step_indices import Table
from sdm_runtime.ops.step_loop import Rows


class Saved(NamedTuple):
    """What a backward needs besides the inputs; N chunks, n = C*W writes each."""

    delta: Tensor  # [N*C, hd] f32
    innovation: Tensor  # [N*C, hd] f32: v minus the bank's answer at the token; delta = beta * it
    x: Tensor  # [N, C, C] f32
    qx: Tensor  # [N, C, C] f32
    order: Tensor  # [N, C*(W+R)] int32, the timeline's sort
    snapshot: Tensor  # [N*n, columns], the written groups' rows before their step, densely numbered
    scales: Tensor | None  # [N*n] f32, quantized rows only


class Store(Protocol):
    """Where a segment's steps work, and what becomes of their results."""

    def buffers(self, segment: Segment) -> tuple[Tensor, Table, Rows]:
        """The step loop's table, its layout, and where gathered bank rows go."""

    def keep(
        self,
        segment: Segment,
        a: Tensor,
        x: Tensor,
        qx: Tensor,
        residual: Tensor,
        delta: Tensor,
        order: Tensor,
    ) -> None:
        """Take a finished segment's results."""


class DropStore:
    """One segment's table and one step's rows, used again and again."""

    def __init__(self, bank: Tensor, geometry: Geometry, segment_steps: int) -> None:
        """Size the buffers for segments of at most segment_steps steps."""
        self._layout = Table.layout(geometry, segment_steps, 0)
        self._table = _new_table(bank, self._layout)
        self._rows = Rows(_new_rows(bank, geometry, 0), 0, 0)

    def buffers(self, segment: Segment) -> tuple[Tensor, Table, Rows]:
        """The same buffers for every segment."""
        return self._table, self._layout, self._rows

    def keep(
        self,
        segment: Segment,
        a: Tensor,
        x: Tensor,
        qx: Tensor,
        residual: Tensor,
        delta: Tensor,
        order: Tensor,
    ) -> None:
        """Drop everything."""

    def finish(self) -> None:
        """There is nothing to hand over."""


class KeepStore:
    """Buffers for all steps; quantized snapshots are encoded segment by segment."""

    def __init__(
        self, bank: Tensor, geometry: Geometry, segment_steps: int, form: SnapshotFormat
    ) -> None:
        """Allocate for the whole call."""
        self._geometry, self._form = geometry, form
        count, chunk, f32 = geometry.chunks, geometry.chunk, torch.float32
        self._table = _new_table(bank, Table.layout(geometry, geometry.steps, 0))
        self._innovation = bank.new_empty((count * chunk, geometry.head_dim), dtype=f32)
        self._x = bank.new_empty((count, chunk, chunk), dtype=f32)
        self._qx = torch.empty_like(self._x)
        entries = geometry.chunk_writes + geometry.chunk_reads
        self._order = bank.new_empty((count, entries), dtype=torch.int32)
        if form.exact:
            self._rows = _new_rows(bank, geometry, geometry.steps)
            return
        self._rows = _new_rows(bank, geometry, segment_steps)
        rows = count * geometry.chunk_writes
        self._snapshot = bank.new_empty((rows, form.columns), dtype=form.dtype)
        self._scales = bank.new_empty(rows, dtype=f32) if form.scaled else None

    def buffers(self, segment: Segment) -> tuple[Tensor, Table, Rows]:
        """The segment's part of the buffers of the whole call."""
        stride = self._geometry.streams * self._geometry.chunk_writes
        layout = Table.layout(self._geometry, self._geometry.steps, segment.first)
        first = segment.first * stride if self._form.exact else 0
        return self._table, layout, Rows(self._rows, first, stride)

    def keep(
        self,
        segment: Segment,
        a: Tensor,
        x: Tensor,
        qx: Tensor,
        residual: Tensor,
        delta: Tensor,
        order: Tensor,
    ) -> None:
        """Copy the segment's results to their place; encode its snapshot if it is quantized."""
        streams, geometry = self._geometry.streams, self._geometry
        chunks = slice(segment.first * streams, segment.last * streams)
        self._x[chunks] = x
        self._qx[chunks] = qx
        self._order[chunks] = order
        place = self._innovation.view(geometry.chunks, geometry.chunk, -1)[chunks]
        torch.baddbmm(residual, a, delta, alpha=-1, out=place)
        if not self._form.exact:
            rows = self._rows[: (chunks.stop - chunks.start) * geometry.chunk_writes]
            where = slice(chunks.start * geometry.chunk_writes, chunks.stop * geometry.chunk_writes)
            self._snapshot[where], scales = encode(rows, self._form)
            if self._scales is not None and scales is not None:
                self._scales[where] = scales

    def finish(self) -> Saved:
        """Everything a backward needs."""
        geometry = self._geometry
        exact = self._form.exact
        return Saved(
            delta=self._table[: geometry.chunks * geometry.chunk],
            innovation=self._innovation,
            x=self._x,
            qx=self._qx,
            order=self._order,
            snapshot=(
                self._rows[: geometry.chunks * geometry.chunk_writes] if exact else self._snapshot
            ),
            scales=None if exact else self._scales,
        )


def _new_table(bank: Tensor, layout: Table) -> Tensor:
    table = bank.new_empty((layout.zero_row + 1, bank.shape[1]), dtype=torch.float32)
    table[layout.zero_row] = 0
    return table


def _new_rows(bank: Tensor, geometry: Geometry, steps: int) -> Tensor:
    """Rows of `steps` snapshots (none: of one gather), and room for the last step's reads."""
    kept = max(steps, 1) * geometry.streams * geometry.chunk_writes
    return bank.new_empty((kept + geometry.streams * geometry.chunk_reads, bank.shape[1]))
