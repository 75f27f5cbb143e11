"""Buffers of the forward's segments: kept for a backward, or reused and dropped."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from sdm_runtime.ops.call.geometry import Geometry, Segment, part_of
from sdm_runtime.ops.call.quant import SnapshotFormat, encode
from sdm_runtime.ops.chunks.products import add_product
from sdm_runtime.ops.chunks.records import (
    ChainRecords,
    records_layout,
    records_of,
    segment_records,
)
from sdm_runtime.ops.forward.token_step import TokenStep
from sdm_runtime.tensor.arena import Arena


class Saved(NamedTuple):
    """All that a backward needs besides the bank; N chunks, m snapshot rows each."""

    delta: Tensor  # [N, C, hd] f32
    innovation: Tensor  # [N, C, hd] f32: v minus the bank's answer at the token; delta = beta * it
    x: Tensor  # [N, C, C] f32
    qx: Tensor  # [N, C, C] f32
    snapshot: Tensor  # [N*m, columns], the written groups' rows before their step, densely numbered
    scales: Tensor | None  # [N*m] f32, quantized rows only
    records: Arena  # ChainRecords
    # With keep_state, of steps that were run token by token: the rows they wrote, whose bits
    # delta alone does not give. None where there was no such step.
    again_places: Tensor | None = None  # int64 [m, 2]: step and bank row
    again_rows: Tensor | None = None  # [m, hd], the bank's dtype


class SegmentBuffers(NamedTuple):
    """Where one segment's steps work; G chunks."""

    delta: Tensor  # f32 [G, C, hd], zeros
    residual: Tensor  # f32 [G, C, hd]: will be v minus the answer of the bank before the chunk
    x: Tensor | None  # f32 [G, C, C], if kept
    qx: Tensor | None  # f32 [G, C, C], if kept
    snapshot: Tensor | None  # [G*m, hd] of the bank's dtype: the rows that are written, if kept
    records: ChainRecords | None  # if they are kept


class Store(Protocol):
    """Where a segment's steps work, and what becomes of their results."""

    needs_a: bool  # keep() takes A

    def buffers(self, segment: Segment) -> SegmentBuffers:
        """Those of a segment, until the next one's are asked for."""

    def keep(
        self, segment: Segment, done: SegmentBuffers, a: Tensor | None, again: dict[int, TokenStep]
    ) -> None:
        """Take a finished segment; a f32 [G, C, C] if needed; again: its steps run by token."""

    def finish(self) -> Saved | None:
        """Everything a backward needs, if it is kept."""


class DropStore:
    """One segment's buffers, used again and again."""

    needs_a = False

    def __init__(self, bank: Tensor, geometry: Geometry, segment_steps: int) -> None:
        """Size the buffers for segments of at most segment_steps steps."""
        self._sequences = geometry.sequences
        rows = (segment_steps * geometry.sequences, geometry.chunk, geometry.head_dim)
        self._delta = bank.new_empty(rows, dtype=torch.float32)
        self._residual = torch.empty_like(self._delta)

    def buffers(self, segment: Segment) -> SegmentBuffers:
        """The same memory for every segment; nothing is restored, and no chain follows."""
        chunks = slice(0, segment.steps * self._sequences)
        return SegmentBuffers(
            delta=part_of(self._delta, chunks).zero_(),
            residual=part_of(self._residual, chunks),
            x=None,
            qx=None,
            snapshot=None,
            records=None,
        )

    def keep(
        self, segment: Segment, done: SegmentBuffers, a: Tensor | None, again: dict[int, TokenStep]
    ) -> None:
        """Drop everything."""

    def finish(self) -> None:
        """There is nothing to hand over."""


class KeepStore:
    """Buffers for all steps; narrower snapshots are encoded segment by segment."""

    needs_a = True

    def __init__(
        self,
        bank: Tensor,
        geometry: Geometry,
        segment_steps: int,
        form: SnapshotFormat,
        *,
        keep_state: bool,
    ) -> None:
        """Allocate for the whole call."""
        self._again: list[tuple[Tensor, Tensor]] | None = [] if keep_state else None
        self._geometry, self._form, self._dtype = geometry, form, bank.dtype
        count, chunk, f32 = geometry.chunks, geometry.chunk, torch.float32
        self._delta = bank.new_zeros((count, chunk, geometry.head_dim), dtype=f32)
        self._innovation = torch.empty_like(self._delta)
        self._x = bank.new_empty((count, chunk, chunk), dtype=f32)
        self._qx = torch.empty_like(self._x)
        self._arena = records_layout(geometry).allocate(bank)
        self._records = records_of(self._arena)
        rows = count * geometry.snapshot_rows
        self._snapshot = bank.new_empty((rows, form.columns), dtype=form.dtype)
        self._scales = bank.new_empty(rows, dtype=f32) if form.scaled else None
        self._segment_rows: Tensor | None = None  # of one segment, before they are encoded
        if not form.exact:
            rows = segment_steps * geometry.sequences * geometry.snapshot_rows
            self._segment_rows = bank.new_empty((rows, geometry.head_dim))

    def buffers(self, segment: Segment) -> SegmentBuffers:
        """The segment's part of what is kept; rows that keep() encodes are apart."""
        chunks, rows = self._geometry.chunk_range(segment), self._row_range(segment)
        if self._segment_rows is None:
            snapshot = part_of(self._snapshot, rows)
        else:
            snapshot = part_of(self._segment_rows, slice(0, rows.stop - rows.start))
        return SegmentBuffers(
            delta=part_of(self._delta, chunks),
            residual=part_of(self._innovation, chunks),
            x=part_of(self._x, chunks),
            qx=part_of(self._qx, chunks),
            snapshot=snapshot,
            records=segment_records(self._records, self._geometry, segment),
        )

    def keep(
        self, segment: Segment, done: SegmentBuffers, a: Tensor | None, again: dict[int, TokenStep]
    ) -> None:
        """Turn the residual into the innovation; encode the snapshot if it is narrower."""
        assert a is not None
        sequences = self._geometry.sequences
        innovation = add_product(done.residual, a, done.delta, alpha=-1)
        for step, tokens in again.items():
            innovation[step * sequences : (step + 1) * sequences] = tokens.innovation
            if self._again is not None:
                number = torch.full_like(tokens.bank_rows, segment.first + step)
                places = torch.stack((number, tokens.bank_rows), 1)
                self._again.append((places, tokens.rows.to(self._dtype)))
        if not self._form.exact:
            assert done.snapshot is not None
            where = self._row_range(segment)
            self._snapshot[where], scales = encode(done.snapshot, self._form)
            if self._scales is not None and scales is not None:
                self._scales[where] = scales

    def _row_range(self, segment: Segment) -> slice:
        chunks, m = self._geometry.chunk_range(segment), self._geometry.snapshot_rows
        return slice(chunks.start * m, chunks.stop * m)

    def finish(self) -> Saved:
        """Everything a backward needs."""
        again = self._again or []  # of the steps that were run token by token
        return Saved(
            delta=self._delta,
            innovation=self._innovation,
            x=self._x,
            qx=self._qx,
            snapshot=self._snapshot,
            scales=self._scales,
            records=self._arena,
            again_places=torch.cat([places for places, _ in again]) if again else None,
            again_rows=torch.cat([rows for _, rows in again]) if again else None,
        )
