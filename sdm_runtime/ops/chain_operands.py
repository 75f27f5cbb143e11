"""The operands of the step chain, for all steps."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.host_memory import zero_rows_like
from sdm_runtime.ops.call import Call
from sdm_runtime.ops.chunk_kernels import ChainRecords, ChunkEvents, prepare_chunks
from sdm_runtime.ops.forward_store import Saved
from sdm_runtime.ops.geometry import Geometry, Segment
from sdm_runtime.ops.staging import Inputs, stage_into


class ChainOperands(NamedTuple):
    """Names and shapes as in sdm_runtime.kernels; row dots have one plane per column slice."""

    grad: Tensor  # [rows, hd], the bank's dtype or f32: the gradient of the bank, in place
    bank: Tensor
    delta: Tensor
    pd: Tensor
    slots: Tensor
    d_dv: Tensor
    dpd: Tensor
    d_u: Tensor
    x: Tensor
    snap: Tensor
    scales: Tensor | None
    beta: Tensor
    kpay: Tensor
    rec: Tensor
    bpre: Tensor
    out_eff: Tensor
    out_g: Tensor
    gy: Tensor
    qrec: Tensor
    dq: Tensor
    cpe: Tensor  # f32 [N, C*W] in staged order: the factor of out_g's planes


def allocate_operands(bank: Tensor, saved: Saved, call: Call, slices: int) -> ChainOperands:
    """Buffers of the whole call; fill_segment writes what the chain reads."""
    geometry = call.geometry
    count, n, m = geometry.chunks, geometry.chunk_writes, geometry.chunk_reads
    rows, hd = count * geometry.chunk, geometry.head_dim

    def new(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=bank.device)

    i32 = torch.int32
    grad_dtype = torch.float32 if call.grad_bank_fp32 else bank.dtype
    return ChainOperands(
        grad=zero_rows_like(bank, grad_dtype),
        bank=bank,
        delta=saved.delta,
        pd=new(rows, geometry.writes),
        slots=new(rows, geometry.writes, dtype=i32),
        d_dv=new(rows, hd),
        dpd=new(slices, count * n),
        d_u=new(count, geometry.chunk, hd),
        x=saved.x,
        snap=saved.snapshot,
        scales=saved.scales,
        beta=new(rows),
        kpay=new(count, n, dtype=i32),
        rec=new(count, n, 4, dtype=i32),
        bpre=new(count, -(-n // 32) + 1, dtype=i32),
        out_eff=new(slices, count * n),
        out_g=new(slices, count * n),
        gy=new(rows, hd),
        qrec=new(count, m, 4, dtype=i32),
        dq=new(slices, count * m),
        cpe=new(count, n),
    )


def chunk_range(geometry: Geometry, segment: Segment) -> slice:
    """The segment's chunks among all chunks."""
    return slice(segment.first * geometry.streams, segment.last * geometry.streams)


def chain_records(operands: ChainOperands, geometry: Geometry, segment: Segment) -> ChainRecords:
    """The segment's part of what chunk_kernels.prepare_chunks writes."""
    where = chunk_range(geometry, segment)
    rows = slice(where.start * geometry.chunk, where.stop * geometry.chunk)
    o = operands
    return ChainRecords(
        beta=o.beta[rows],
        pd=o.pd[rows],
        slots=o.slots[rows],
        cpe=o.cpe[where],
        kpay=o.kpay[where],
        rec=o.rec[where],
        bpre=o.bpre[where],
        qrec=o.qrec[where],
    )


def fill_segment(
    operands: ChainOperands,
    inputs: Inputs,
    saved: Saved,
    grad_readings: Tensor,
    geometry: Geometry,
    segment: Segment,
) -> ChunkEvents:
    """Write a segment's records and d_u = QX^T gy; grad_readings is [P, T, hd]."""
    where = chunk_range(geometry, segment)
    records = chain_records(operands, geometry, segment)
    order = saved.order[where]
    chunks = prepare_chunks(inputs, geometry, segment, order, operands.bank.dtype, records)
    gy = operands.gy.view(geometry.chunks, geometry.chunk, -1)[where]
    stage_into(grad_readings, geometry, segment, gy)
    torch.bmm(saved.qx[where].transpose(1, 2), gy, out=operands.d_u[where])
    return chunks
