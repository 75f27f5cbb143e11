"""The step loop's working rows: one f32 table that its weighted sums take rows from.

The table [rows, hd] holds, one after another:

    v_row ..       v, overwritten by delta as the steps run: one row per token, chunk by chunk
    group_row ..   the step's written slots before the step, one row per group
    read_row ..    the step's read rows before the step (bf16 banks only)
    zero_row       zeros, where padding points: a weight of 0 would keep a NaN

An f32 bank's group rows are gathered into the table itself, and its read rows are summed where
they are. A bf16 bank's rows, groups then reads, are gathered into a buffer of their own and widened
from there. Where snapshots are kept, each step's place lies one snapshot (P*C*W rows) behind the
last, so that a step's read rows lie where the next step's snapshot goes: one gather serves both,
and the snapshots end up back to back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.ops.geometry import Geometry


class StepTable(NamedTuple):
    """The table and the numbers of its rows, for one segment."""

    rows: Tensor  # f32 [zero_row + 1, hd]
    v_row: int  # of the segment's first token
    group_row: int  # of the segment's first step
    stride: int  # from one step's group rows to the next step's
    read_offset: int | None  # read_row - group_row, if read rows are fetched
    zero_row: int
    # Where a bf16 bank is gathered to, and its rows from one step to the next.
    fetched: Tensor | None
    fetched_row: int
    fetched_stride: int

    def step_rows(self, steps: int, count: int) -> Sequence[Tensor]:
        """The table's group and read rows of each of the segment's steps, [count, hd]."""
        return _windows(self.rows, self.group_row, self.stride, steps, count)

    def fetched_rows(self, steps: int, count: int) -> Sequence[Tensor] | None:
        """Where the bank rows of each step go first, if that is not the table."""
        if self.fetched is None:
            return None
        return _windows(self.fetched, self.fetched_row, self.fetched_stride, steps, count)


def _windows(rows: Tensor, first: int, stride: int, steps: int, count: int) -> Sequence[Tensor]:
    """Views of rows [first + i * stride, + count) for i < steps; they may overlap."""
    hd = rows.shape[1]
    return rows.as_strided((steps, count, hd), (stride * hd, hd, 1), first * hd).unbind(0)


class TableBuffers:
    """Buffers for tables of `token_steps` steps' tokens and `kept_steps` steps' snapshots."""

    def __init__(self, bank: Tensor, geometry: Geometry, token_steps: int, kept_steps: int) -> None:
        """Allocate; kept_steps = 0 reuses one step's rows for all."""
        self._geometry = geometry
        self._stride = geometry.streams * geometry.chunk_writes if kept_steps else 0
        self._widen = bank.dtype != torch.float32
        step = geometry.streams * geometry.chunk_writes
        step += geometry.streams * geometry.chunk_reads if self._widen else 0
        kept = step + max(kept_steps - 1, 0) * self._stride
        self._group_row = token_steps * geometry.streams * geometry.chunk
        self._zero_row = self._group_row + (step if self._widen else kept)
        shape = (self._zero_row + 1, geometry.head_dim)
        self._table = bank.new_empty(shape, dtype=torch.float32)
        self._table[self._zero_row] = 0
        self._fetched = bank.new_empty((kept, geometry.head_dim)) if self._widen else None

    def table(self, token_step: int, kept_step: int) -> StepTable:
        """The table of a segment: its first step's tokens and snapshot are at these steps."""
        geometry = self._geometry
        kept_row = kept_step * self._stride
        return StepTable(
            rows=self._table,
            v_row=token_step * geometry.streams * geometry.chunk,
            group_row=self._group_row + (0 if self._widen else kept_row),
            stride=0 if self._widen else self._stride,
            read_offset=geometry.streams * geometry.chunk_writes if self._widen else None,
            zero_row=self._zero_row,
            fetched=self._fetched,
            fetched_row=kept_row,
            fetched_stride=self._stride,
        )

    def deltas(self) -> Tensor:
        """All token rows."""
        return self._table[: self._group_row]

    def snapshots(self, steps: int) -> Tensor:
        """The kept group rows of the first `steps` steps, in the bank's dtype."""
        if self._fetched is not None:
            return self._fetched[: steps * self._stride]
        return self._table[self._group_row :][: steps * self._stride]
