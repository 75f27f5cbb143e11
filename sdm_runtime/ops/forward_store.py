"""Buffers of the forward's segments: kept for a backward, or reused and dropped."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from sdm_runtime.ops.chain_records import ChainRecords, allocate_records, segment_records
from sdm_runtime.ops.geometry import Geometry, Segment
from sdm_runtime.ops.products import added_product
from sdm_runtime.ops.quant import SnapshotFormat, encode
from sdm_runtime.ops.token_step import TokenStep


class Saved(NamedTuple):
    """All that a backward needs besides the bank; N chunks, n = C*W writes each."""

    delta: Tensor  # [N*C, hd] f32
    innovation: Tensor  # [N*C, hd] f32: v minus the bank's answer at the token; delta = beta * it
    x: Tensor  # [N, C, C] f32
    qx: Tensor  # [N, C, C] f32
    snapshot: Tensor  # [N*n, columns], the written groups' rows before their step, densely numbered
    scales: Tensor | None  # [N*n] f32, quantized rows only
    records: ChainRecords


class SegmentResults(NamedTuple):
    """One segment's results for the store; G chunks."""

    a: Tensor  # [G, C, C]
    x: Tensor  # [G, C, C]
    qx: Tensor  # [G, C, C]
    residual: Tensor  # [G, C, hd]: v minus the answer of the bank before the chunk
    delta: Tensor  # [G, C, hd]
    snapshot: Tensor | None  # [G*n, hd] of the bank's dtype
    again: dict[int, TokenStep]  # steps of the segment that were run token by token


class Store(Protocol):
    """Where a segment's steps work, and what becomes of their results."""

    def delta(self, segment: Segment) -> Tensor:
        """Zeros for the segment's delta, f32 [G, C, hd]."""

    def snapshot(self, segment: Segment) -> Tensor | None:
        """Where the segment's steps keep the rows that they write, [G*n, hd], if they do."""

    def records(self, segment: Segment) -> ChainRecords | None:
        """Where a segment's records go, if they are kept."""

    def keep(self, segment: Segment, results: SegmentResults) -> None:
        """Take a finished segment's results."""

    def finish(self) -> Saved | None:
        """Everything a backward needs, if it is kept."""


class DropStore:
    """One segment's delta, used again and again."""

    def __init__(self, bank: Tensor, geometry: Geometry, segment_steps: int) -> None:
        """Size the buffer for segments of at most segment_steps steps."""
        self._streams = geometry.streams
        shape = (segment_steps * geometry.streams, geometry.chunk, geometry.head_dim)
        self._delta = bank.new_empty(shape, dtype=torch.float32)

    def delta(self, segment: Segment) -> Tensor:
        """The same memory for every segment."""
        return self._delta[: segment.steps * self._streams].zero_()

    def snapshot(self, segment: Segment) -> None:
        """Nothing is restored."""

    def records(self, segment: Segment) -> None:
        """No chain follows."""

    def keep(self, segment: Segment, results: SegmentResults) -> None:
        """Drop everything."""

    def finish(self) -> None:
        """There is nothing to hand over."""


class KeepStore:
    """Buffers for all steps; narrower snapshots are encoded segment by segment."""

    def __init__(
        self, bank: Tensor, geometry: Geometry, segment_steps: int, form: SnapshotFormat
    ) -> None:
        """Allocate for the whole call."""
        self._geometry, self._form = geometry, form
        count, chunk, f32 = geometry.chunks, geometry.chunk, torch.float32
        self._delta = bank.new_zeros((count, chunk, geometry.head_dim), dtype=f32)
        self._innovation = torch.empty_like(self._delta)
        self._x = bank.new_empty((count, chunk, chunk), dtype=f32)
        self._qx = torch.empty_like(self._x)
        self._records = allocate_records(bank, geometry)
        rows = count * geometry.chunk_writes
        self._snapshot = bank.new_empty((rows, form.columns), dtype=form.dtype)
        self._scales = bank.new_empty(rows, dtype=f32) if form.scaled else None
        self._segment_rows: Tensor | None = None  # of one segment, before they are encoded
        if not form.exact:
            rows = segment_steps * geometry.streams * geometry.chunk_writes
            self._segment_rows = bank.new_empty((rows, geometry.head_dim))

    def delta(self, segment: Segment) -> Tensor:
        """The segment's part of all tokens'."""
        return self._delta[self._geometry.chunk_range(segment)]

    def snapshot(self, segment: Segment) -> Tensor:
        """The segment's part of the snapshot, or rows that keep() encodes into it."""
        if self._segment_rows is None:
            return self._snapshot[self._row_range(segment)]
        where = self._row_range(segment)
        return self._segment_rows[: where.stop - where.start]

    def records(self, segment: Segment) -> ChainRecords:
        """The segment's part of the records of the whole call."""
        return segment_records(self._records, self._geometry, segment)

    def keep(self, segment: Segment, results: SegmentResults) -> None:
        """Copy the segment's results to their place; encode its snapshot if it is narrower."""
        streams = self._geometry.streams
        chunks = self._geometry.chunk_range(segment)
        self._x[chunks] = results.x
        self._qx[chunks] = results.qx
        innovation = self._innovation[chunks]
        added_product(results.residual, results.a, results.delta, alpha=-1, out=innovation)
        for step, tokens in results.again.items():
            innovation[step * streams : (step + 1) * streams] = tokens.innovation
        if not self._form.exact:
            assert results.snapshot is not None
            where = self._row_range(segment)
            self._snapshot[where], scales = encode(results.snapshot, self._form)
            if self._scales is not None and scales is not None:
                self._scales[where] = scales

    def _row_range(self, segment: Segment) -> slice:
        chunks, n = self._geometry.chunk_range(segment), self._geometry.chunk_writes
        return slice(chunks.start * n, chunks.stop * n)

    def finish(self) -> Saved:
        """Everything a backward needs."""
        return Saved(
            delta=self._delta.flatten(0, 1),
            innovation=self._innovation.flatten(0, 1),
            x=self._x,
            qx=self._qx,
            snapshot=self._snapshot,
            scales=self._scales,
            records=self._records,
        )
