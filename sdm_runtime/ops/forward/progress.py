"""How far a forward has come, and the way back where its snapshots have the old rows' bits."""

from __future__ import annotations

import torch
from torch import Tensor

from sdm_runtime.ops.call.geometry import Geometry
from sdm_runtime.ops.chunks.records import group_rows
from sdm_runtime.ops.forward.store import SegmentBuffers
from sdm_runtime.tensor.refs import capturing


class StepsWritten:
    """Which steps of a segment have written the bank: the first so many."""

    def __init__(self, room: SegmentBuffers) -> None:
        """None yet, with these buffers."""
        self.room = room
        self.marks: list[None] = []  # of each run that has been issued
        self.together = 1  # the steps of a run
        self._of_failed: int | None = 0  # steps of a run that failed; None: unknown

    def issued(self, launches: int | None, a_step: int) -> None:
        """Note how many launches a failed run has issued; the last one of a step writes."""
        self._of_failed = None if launches is None else launches // a_step

    @property
    def steps(self) -> int | None:
        """How many steps; None: unknown."""
        of_failed = self._of_failed
        return None if of_failed is None else len(self.marks) * self.together + of_failed


class Progress:
    """The segments of one forward that have begun."""

    def __init__(self) -> None:
        """None yet."""
        self._begun: list[StepsWritten] = []

    def begin(self, room: SegmentBuffers) -> StepsWritten:
        """A segment's steps are about to run, with these buffers."""
        self._begun.append(StepsWritten(room))
        return self._begun[-1]

    def undo(self, bank: Tensor, geometry: Geometry, *, exact: bool) -> bool:
        """Write the old rows back: whether the bank holds what it held before, to the bit.

        Args:
            bank: [rows, hd].
            geometry: Of the call.
            exact: Snapshots are kept as the rows are. Those of narrower formats are encoded when
                their segment has ended.
        """
        counts = [written.steps for written in self._begun]
        if not any(count is None or count for count in counts):
            return True
        if bank.is_cuda and capturing(bank.device):
            return True  # what a capture records has not run
        if None in counts or (not exact and len(counts) > 1):
            return False
        with torch.no_grad():
            for written, count in zip(reversed(self._begun), reversed(counts), strict=True):
                assert count is not None
                if count and not _restore(bank, geometry, written.room, count):
                    return False
        return True


def _restore(bank: Tensor, geometry: Geometry, room: SegmentBuffers, steps: int) -> bool:
    """The rows before the segment's first steps; whether there are snapshots."""
    records, snapshot = room.records, room.snapshot
    if records is None or snapshot is None:
        return False
    old_rows = snapshot.view(records.rec.shape[0], -1, snapshot.shape[1])  # by chunk and ordinal
    for step in reversed(range(steps)):
        here = slice(step * geometry.sequences, (step + 1) * geometry.sequences)
        rows, groups = group_rows(records.rec[here])
        kept = groups[:, : old_rows.shape[1]]  # no chunk has more groups than snapshot rows
        bank.index_copy_(0, rows[groups], old_rows[here][kept])
    return True
