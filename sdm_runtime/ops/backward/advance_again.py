"""The bank as the forward left it, made again from the bank before: for `keep_state`.

The forward's writes take the same numbers in the same order, so they give the same bits. That costs
its write kernel once more, and no memory that outlives the backward; swapping the rows with the
snapshot instead would have made every backward's kernel longer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sdm_runtime.ops.call.call import Call
from sdm_runtime.ops.call.geometry import Geometry, part_of
from sdm_runtime.ops.chunks.records import (
    ChainRecords,
    entry_places,
    records_of,
    segment_records,
)
from sdm_runtime.ops.forward.chain import write_chain
from sdm_runtime.ops.forward.store import Saved


def advance_again(bank: Tensor, saved: Saved, call: Call) -> None:
    """Run the call's writes on bank [rows, hd], which is as it was before the call, to the bit."""
    geometry, records = call.geometry, records_of(saved.records)
    for segment in geometry.segments(cuda=bank.is_cuda):
        updates = _updates(segment_records(records, geometry, segment), geometry)
        delta = part_of(saved.delta, geometry.chunk_range(segment))
        chain = write_chain(bank, delta, updates, geometry, segment).chain
        if saved.again_rows is None:
            chain.run()
            continue
        assert saved.again_places is not None
        for step in range(segment.steps):
            chain.run_step(step)
            here = saved.again_places[:, 0] == segment.first + step
            bank.index_copy_(0, saved.again_places[here, 1], saved.again_rows[here])


def _updates(records: ChainRecords, geometry: Geometry) -> Tensor:
    """What fx_write reads, int32 [G, n, 4], from the backward's records of G chunks."""
    word, row, _, decay = records.rec.unbind(-1)
    place = entry_places(word, geometry.writes).clamp_max_(geometry.chunk_writes - 1)
    scales = records.pd.view(torch.int32).view(word.shape).gather(1, place.long())
    return torch.stack((word, row, scales, decay), -1)
