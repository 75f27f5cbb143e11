"""The operands of the step chain, for all steps."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.ops.call import Call
from sdm_runtime.ops.forward_store import Saved
from sdm_runtime.ops.geometry import Geometry, Segment
from sdm_runtime.ops.records import first_counts, payload, read_records, write_records
from sdm_runtime.ops.segment_state import SegmentState
from sdm_runtime.ops.staging import stage
from sdm_runtime.ops.weights import staged


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
        grad=torch.zeros_like(bank, dtype=grad_dtype),
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


def fill_segment(
    operands: ChainOperands,
    state: SegmentState,
    saved: Saved,
    grad_readings: Tensor,
    geometry: Geometry,
) -> None:
    """Write a segment's records and d_u = QX^T gy; grad_readings is [P, T, hd]."""
    where = chunk_range(geometry, state.segment)
    rows = slice(where.start * geometry.chunk, where.stop * geometry.chunk)
    chunks, weights = state.chunks, state.weights
    writes, reads = state.timeline.writes, state.timeline.reads

    # gx_gwr and gx_gemm
    operands.pd[rows] = staged(weights.pd, writes).view(-1, geometry.writes)
    slots = chunks.k_rows.masked_fill(~chunks.valid.unsqueeze(2), 0)
    operands.slots[rows] = slots.view(-1, geometry.writes)
    gy = stage(grad_readings, geometry, state.segment, torch.float32)
    operands.gy[rows] = gy.flatten(0, 1)
    torch.bmm(saved.qx[where].transpose(1, 2), gy, out=operands.d_u[where])

    # gx_pa2 and gx_gds
    operands.beta[rows] = chunks.beta.flatten()
    kpay = payload(writes, geometry.writes)
    operands.kpay[where] = kpay
    write_records(writes, kpay, weights, chunks, operands.rec[where])
    operands.bpre[where] = first_counts(writes)
    operands.cpe[where] = staged(weights.total, writes)
    read_records(reads, weights, geometry.reads, operands.qrec[where])
