"""What a backward needs of the inputs: written by the forward's chunk kernels, and saved."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.kernels import num_slices
from sdm_runtime.ops.geometry import Geometry, Segment


class ChainRecords(NamedTuple):
    """The step chain's operands that follow from the inputs, and the events of the gradients.

    N chunks, n = C*W writes and E = C*(W+R) events each; the layouts are the chain's contract.
    """

    events: Tensor  # f64 [N, E, 2], sorted by slot: log sum; bits of the weight and of the word
    beta: Tensor  # f32 [N*C]
    pd: Tensor  # f32 [N*C, W]
    slots: Tensor  # int32 [N*C, W]
    rec: Tensor  # int32 [N, n, 4], sorted by slot
    bpre: Tensor  # int32 [N, ceil(n/32) + 1]
    qrec: Tensor  # int32 [N, C*R, 4], sorted by slot
    cpe: Tensor | None  # f32 [N, n], staged: the factor of several planes; one plane needs none


def allocate_records(bank: Tensor, geometry: Geometry) -> ChainRecords:
    """Room for the records of a whole call on the bank's device."""
    count, n, m = geometry.chunks, geometry.chunk_writes, geometry.chunk_reads
    rows = count * geometry.chunk

    def new(*shape: int, dtype: torch.dtype) -> Tensor:
        return bank.new_empty(shape, dtype=dtype)

    f32, i32 = torch.float32, torch.int32
    return ChainRecords(
        events=new(count, n + m, 2, dtype=torch.float64),
        beta=new(rows, dtype=f32),
        pd=new(rows, geometry.writes, dtype=f32),
        slots=new(rows, geometry.writes, dtype=i32),
        rec=new(count, n, 4, dtype=i32),
        bpre=new(count, -(-n // 32) + 1, dtype=i32),
        qrec=new(count, m, 4, dtype=i32),
        cpe=new(count, n, dtype=f32) if num_slices(geometry.head_dim) > 1 else None,
    )


def segment_records(records: ChainRecords, geometry: Geometry, segment: Segment) -> ChainRecords:
    """The segment's part."""
    where = geometry.chunk_range(segment)
    rows = slice(where.start * geometry.chunk, where.stop * geometry.chunk)
    r = records
    return ChainRecords(
        events=r.events[where],
        beta=r.beta[rows],
        pd=r.pd[rows],
        slots=r.slots[rows],
        rec=r.rec[where],
        bpre=r.bpre[where],
        qrec=r.qrec[where],
        cpe=None if r.cpe is None else r.cpe[where],
    )
