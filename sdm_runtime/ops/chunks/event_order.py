"""Every chunk's writes and reads in one stable order by slot: who shares a slot with whom."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.ops.call.geometry import Geometry, Segment
from sdm_runtime.ops.call.staging import Inputs


class EventOrder(NamedTuple):
    """All chunks' events by one flat, stable sort; E = C * (W + R).

    A chunk's events are staged token by token, a token's writes before its reads.
    """

    keys: Tensor  # int32 or int64 [N, E]: slot (bank_rows: padding) + chunk * (bank_rows + 1)
    order: Tensor  # int64 [N, E]: chunk * E + staged place


def event_order(inputs: Inputs, geometry: Geometry, segment: Segment) -> EventOrder:
    """Sort a segment's events by slot, padding last."""
    rows, device = geometry.bank_rows, inputs.k_idx.device
    steps, sequences, chunk = segment.steps, geometry.sequences, geometry.chunk
    count, entries = steps * sequences, geometry.writes + geometry.reads
    bound = rows + 1  # padding sorts after every bank row
    # As one flat sort: torch sorts flat integers by radix, several times faster than rows.
    dtype = torch.int32 if count * bound < 2**31 else torch.int64
    keys = torch.empty((steps, sequences, chunk, entries), dtype=dtype, device=device)
    first_keys = torch.arange(0, count * bound, bound, dtype=dtype, device=device)
    by_sequence, first_keys = keys.transpose(0, 1), first_keys.view(steps, sequences, 1, 1)
    first_keys = first_keys.transpose(0, 1)

    begin, end = geometry.token_range(segment)
    whole, rest = divmod(end - begin, chunk)
    cut = end - rest
    for x, part in (
        (inputs.k_idx, by_sequence[..., : geometry.writes]),
        (inputs.q_idx, by_sequence[..., geometry.writes :]),
    ):
        chunks = x[:, begin:cut].view(sequences, whole, chunk, x.shape[2])
        torch.add(chunks, first_keys[:, :whole], out=part[:, :whole])
        if rest:
            torch.add(x[:, cut:end], first_keys[:, whole], out=part[:, whole, :rest])
            part[:, whole, rest:] = first_keys[:, whole] + rows
    sorted_keys, order = torch.sort(keys.flatten(), stable=True)
    return EventOrder(sorted_keys.view(count, -1), order.view(count, -1))
