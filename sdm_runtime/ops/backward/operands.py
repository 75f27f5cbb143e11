"""The operands of the step chain, for all steps."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.kernels import num_slices
from sdm_runtime.machine.host_memory import empty_rows_like
from sdm_runtime.ops.backward.side_stream import SideStream
from sdm_runtime.ops.call.call import Call
from sdm_runtime.ops.call.geometry import Geometry, Segment
from sdm_runtime.ops.call.staging import stage_into
from sdm_runtime.ops.chunks.matrices import lower_transposed_product
from sdm_runtime.ops.forward.store import Saved
from sdm_runtime.tensor.arena import Arena, ArenaLayout, Part

# A bank whose clearing takes longer than handing it to another stream does.
_LARGE_BYTES = 128 << 20


class ChainOperands(NamedTuple):
    """Names and shapes as in sdm_runtime.kernels."""

    grad: Tensor  # [rows, hd], the bank's dtype or f32: the gradient of the bank, in place
    bank: Tensor
    delta: Tensor
    d_dv: Tensor  # [N, C, hd], as d_u and gy
    d_u: Tensor
    x: Tensor
    snap: Tensor
    scales: Tensor | None
    gy: Tensor
    dots: Arena  # dpd, out_eff, out_g and dq
    records: Arena  # the forward's: pd, slots, beta, rec, bpre and qrec

    def tensors(self) -> dict[str, Tensor]:
        """The operands that no arena holds, by their names in the chain's plans."""
        named = {"grad": self.grad, "bank": self.bank, "delta": self.delta, "d_dv": self.d_dv}
        named |= {"d_u": self.d_u, "x": self.x, "snap": self.snap, "gy": self.gy}
        if self.scales is not None:
            named["scales"] = self.scales
        return named


@lru_cache(maxsize=512)
def dots_layout(geometry: Geometry) -> ArenaLayout:
    """The row dots of a whole call, with a plane for each column slice."""
    slices, count, f32 = num_slices(geometry.head_dim), geometry.chunks, torch.float32
    writes, reads = (slices, count * geometry.chunk_writes), (slices, count * geometry.chunk_reads)
    parts = [
        Part("dpd", f32, writes),
        Part("out_eff", f32, writes),
        Part("out_g", f32, writes),
        Part("dq", f32, reads),
    ]
    return ArenaLayout(parts, alignment=256)


def allocate_operands(bank: Tensor, saved: Saved, call: Call) -> ChainOperands:
    """Buffers of the whole call; fill_operands writes what is neither saved nor an output."""
    return ChainOperands(
        grad=empty_rows_like(bank, torch.float32 if call.grad_bank_fp32 else bank.dtype),
        bank=bank,
        delta=saved.delta,
        d_dv=torch.empty_like(saved.delta),
        d_u=torch.empty_like(saved.delta),
        x=saved.x,
        snap=saved.snapshot,
        scales=saved.scales,
        gy=torch.empty_like(saved.delta),
        dots=dots_layout(call.geometry).allocate(bank),
        records=saved.records,
    )


def fill_operands(
    operands: ChainOperands, saved: Saved, grad_readings: Tensor, geometry: Geometry
) -> None:
    """Clear grad, stage gy and write d_u = QX^T gy; grad_readings as stage_into takes it."""
    gy = operands.gy
    with SideStream(gy.device, worthwhile=operands.grad.nbytes >= _LARGE_BYTES) as side:
        with side.stream():
            operands.grad.zero_()
        stage_into(grad_readings, geometry, Segment(0, geometry.steps), gy)
        lower_transposed_product(saved.qx, gy, operands.d_u)
