"""One side of the same-slot pairs: sorted entries with their weights, log sums and ranges."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from sdm_runtime.ops.log_sums import LogSums
from sdm_runtime.ops.timeline import Entries, Timeline
from sdm_runtime.ops.weights import Weights


class PairSide(NamedTuple):
    """Entries [N, m] of one kind as the later or the earlier member of pairs with writes."""

    entries: Entries
    weight: Tensor  # f32
    log: Tensor  # f64
    past: tuple[Tensor, Tensor]  # the writes this entry pairs with as the later member
    # The entries of this kind that pair with each write as the earlier member, one row per write.
    future: tuple[Tensor, Tensor]


def pair_sides(timeline: Timeline, weights: Weights, sums: LogSums) -> tuple[PairSide, PairSide]:
    """The writes and the reads, each paired with the writes that come before them."""
    writes = timeline.writes
    return (
        PairSide(
            writes,
            weights.k,
            sums.write,
            past=(writes.start, timeline.run_start),
            future=(timeline.run_stop, writes.stop),
        ),
        PairSide(
            timeline.reads,
            weights.q,
            sums.read,
            past=(timeline.source_start, timeline.source_stop),
            future=(timeline.reader_start, timeline.reader_stop),
        ),
    )
