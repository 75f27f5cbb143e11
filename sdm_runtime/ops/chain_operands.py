"""The operands of the step chain, for all steps."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.host_memory import empty_rows_like
from sdm_runtime.ops.beside import Beside
from sdm_runtime.ops.call import Call
from sdm_runtime.ops.chunk_matrices import lower_transposed_product
from sdm_runtime.ops.forward_store import Saved
from sdm_runtime.ops.geometry import Geometry, Segment
from sdm_runtime.ops.staging import stage_into

# A bank whose clearing takes longer than handing it to another stream does.
_LARGE_BYTES = 128 << 20


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
    rec: Tensor
    bpre: Tensor
    out_eff: Tensor
    out_g: Tensor
    gy: Tensor
    qrec: Tensor
    dq: Tensor
    cpe: Tensor | None  # f32 [N, C*W], staged: the factor of out_g's planes, if they are several

    def of_chain(self) -> dict[str, Tensor]:
        """Those of the chain's plans, by name."""
        operands = dict(zip(_OF_CHAIN, self, strict=False))
        return {name: x for name, x in operands.items() if x is not None}


_OF_CHAIN = ChainOperands._fields[:-1]  # all but cpe


def allocate_operands(bank: Tensor, saved: Saved, call: Call, slices: int) -> ChainOperands:
    """Buffers of the whole call; fill_operands writes what is neither saved nor an output."""
    geometry = call.geometry
    count, n, m = geometry.chunks, geometry.chunk_writes, geometry.chunk_reads
    rows, hd = count * geometry.chunk, geometry.head_dim

    def new(*shape: int) -> Tensor:
        return bank.new_empty(shape, dtype=torch.float32)

    r = saved.records
    grad_dtype = torch.float32 if call.grad_bank_fp32 else bank.dtype
    return ChainOperands(
        grad=empty_rows_like(bank, grad_dtype),
        bank=bank,
        delta=saved.delta,
        pd=r.pd,
        slots=r.slots,
        d_dv=new(rows, hd),
        dpd=new(slices, count * n),
        d_u=new(count, geometry.chunk, hd),
        x=saved.x,
        snap=saved.snapshot,
        scales=saved.scales,
        beta=r.beta,
        rec=r.rec,
        bpre=r.bpre,
        out_eff=new(slices, count * n),
        out_g=new(slices, count * n),
        gy=new(rows, hd),
        qrec=r.qrec,
        dq=new(slices, count * m),
        cpe=r.cpe,
    )


def fill_operands(
    operands: ChainOperands, saved: Saved, grad_readings: Tensor, geometry: Geometry
) -> None:
    """Clear grad, stage gy and write d_u = QX^T gy; grad_readings is [P, T, hd]."""
    gy = operands.gy.view(geometry.chunks, geometry.chunk, -1)
    with Beside(gy.device, worthwhile=operands.grad.nbytes >= _LARGE_BYTES) as side:
        with side.stream():
            operands.grad.zero_()
        stage_into(grad_readings, geometry, Segment(0, geometry.steps), gy)
        lower_transposed_product(saved.qx, gy, operands.d_u)
