"""Every chunk's writes and reads in one stable order by slot: who shares a slot with whom."""

from __future__ import annotations

import torch
from torch import Tensor

from sdm_runtime.ops.geometry import Geometry, Segment
from sdm_runtime.ops.staging import Inputs, stage_into


def event_order(inputs: Inputs, geometry: Geometry, segment: Segment) -> Tensor:
    """The staged places of each chunk's events, sorted by slot: int32 [N, C * (W + R)].

    A chunk's events are staged token by token, a token's writes before its reads; the sort is
    stable, and padding goes last.
    """
    rows, device = geometry.bank_rows, inputs.k_idx.device
    count, width = segment.steps * geometry.streams, geometry.chunk_writes + geometry.chunk_reads
    bound = rows + 1  # padding sorts after every bank row
    # As one flat sort: torch sorts flat integers by radix, several times faster than rows.
    dtype = torch.int32 if count * bound < 2**31 else torch.int64
    shape = (count, geometry.chunk, geometry.writes + geometry.reads)
    keys = torch.empty(shape, dtype=dtype, device=device)
    stage_into(inputs.k_idx, geometry, segment, keys[..., : geometry.writes], padding=rows)
    stage_into(inputs.q_idx, geometry, segment, keys[..., geometry.writes :], padding=rows)
    chunks = torch.arange(count, dtype=dtype, device=device)
    keys += (chunks * bound).view(-1, 1, 1)
    order = torch.sort(keys.flatten(), stable=True).indices.view(count, width)
    first = torch.arange(0, count * width, width, device=device)
    return order.sub_(first.unsqueeze(1)).to(torch.int32)
