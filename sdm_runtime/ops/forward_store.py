"""Buffers of the forward's segments: kept for a backward, or reused and dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from sdm_runtime.ops.chain_records import ChainRecords, allocate_records, segment_records
from sdm_runtime.ops.geometry import Geometry, Segment
from sdm_runtime.ops.quant import SnapshotFormat, encode
from sdm_runtime.ops.step_table import StepTable, TableBuffers
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

    def tensors(self) -> tuple[Tensor | None, ...]:
        """One after another; from_tensors puts them together again."""
        return (*self[:-1], *self.records)

    @classmethod
    def from_tensors(cls, tensors: Sequence[Any]) -> Saved:
        """What tensors() took apart."""
        delta, innovation, x, qx, snapshot, scales, *records = tensors
        return cls(delta, innovation, x, qx, snapshot, scales, ChainRecords(*records))


class SegmentResults(NamedTuple):
    """One segment's results for the store; G chunks."""

    a: Tensor  # [G, C, C]
    x: Tensor  # [G, C, C]
    qx: Tensor  # [G, C, C]
    residual: Tensor  # [G, C, hd]: v minus the answer of the bank before the chunk
    delta: Tensor  # [G, C, hd]
    again: dict[int, TokenStep]  # steps of the segment that were run token by token


class Store(Protocol):
    """Where a segment's steps work, and what becomes of their results."""

    def table(self, segment: Segment) -> StepTable:
        """The step loop's table for a segment."""

    def records(self, segment: Segment) -> ChainRecords | None:
        """Where a segment's records go, if they are kept."""

    def keep(self, segment: Segment, results: SegmentResults) -> None:
        """Take a finished segment's results."""

    def finish(self) -> Saved | None:
        """Everything a backward needs, if it is kept."""


class DropStore:
    """One segment's tokens and one step's rows, used again and again."""

    def __init__(self, bank: Tensor, geometry: Geometry, segment_steps: int) -> None:
        """Size the buffers for segments of at most segment_steps steps."""
        self._buffers = TableBuffers(bank, geometry, segment_steps, 0)

    def table(self, segment: Segment) -> StepTable:
        """The same buffers for every segment."""
        return self._buffers.table(0, 0)

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
        kept_steps = geometry.steps if form.exact else segment_steps
        self._buffers = TableBuffers(bank, geometry, geometry.steps, kept_steps)
        self._innovation = bank.new_empty((count, chunk, geometry.head_dim), dtype=f32)
        self._x = bank.new_empty((count, chunk, chunk), dtype=f32)
        self._qx = torch.empty_like(self._x)
        self._records = allocate_records(bank, geometry)
        rows = 0 if form.exact else count * geometry.chunk_writes
        self._snapshot = bank.new_empty((rows, form.columns), dtype=form.dtype)
        self._scales = bank.new_empty(rows, dtype=f32) if form.scaled else None

    def table(self, segment: Segment) -> StepTable:
        """The segment's part of the buffers of the whole call."""
        return self._buffers.table(segment.first, segment.first if self._form.exact else 0)

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
        torch.baddbmm(results.residual, results.a, results.delta, alpha=-1, out=innovation)
        for step, tokens in results.again.items():
            innovation[step * streams : (step + 1) * streams] = tokens.innovation
        if not self._form.exact:
            n = self._geometry.chunk_writes
            where = slice(chunks.start * n, chunks.stop * n)
            rows = self._buffers.snapshots(segment.steps)
            self._snapshot[where], scales = encode(rows, self._form)
            if self._scales is not None and scales is not None:
                self._scales[where] = scales

    def finish(self) -> Saved:
        """Everything a backward needs."""
        exact = self._form.exact
        return Saved(
            delta=self._buffers.deltas(),
            innovation=self._innovation.flatten(0, 1),
            x=self._x,
            qx=self._qx,
            snapshot=self._buffers.snapshots(self._geometry.steps) if exact else self._snapshot,
            scales=self._scales,
            records=self._records,
        )
