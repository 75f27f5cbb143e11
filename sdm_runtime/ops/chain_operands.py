"""The operands of the step chain, for all steps."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.arena import Arena, ArenaLayout, Part
from sdm_runtime.host_memory import empty_rows_like
from sdm_runtime.kernels import num_slices
from sdm_runtime.ops.beside import Beside
from sdm_runtime.ops.call import Call
from sdm_runtime.ops.chunk_matrices import lower_transposed_product
from sdm_runtime.ops.forward_store import Saved
from sdm_runtime.ops.geometry import Geometry, Segment
from sdm_runtime.ops.staging import stage_into

# A bank whose clearing takes longer than handing it to another stream does.
_LARGE_BYTES = 128 << 20


class ChainOperands(NamedTuple):
    """Names and shapes as in sdm_runtime.kernels."""

    grad: Tensor  # [rows, hd], the bank's dtype or f32: the gradient of the bank, in place
    bank: Tensor
    delta: Tensor
    d_u: Tensor
    x: Tensor
    snap: Tensor
    scales: Tensor | None
    gy: Tensor  # [N, C, hd]
    written: Arena  # by the chain before anything reads it: d_dv and the row dots
    records: Arena  # the forward's: pd, slots, beta, rec, bpre and qrec

    def tensors(self) -> dict[str, Tensor]:
        """Those that no arena holds, by the names of the chain's plans."""
        named = {"grad": self.grad, "bank": self.bank, "delta": self.delta, "d_u": self.d_u}
        named |= {"x": self.x, "snap": self.snap, "gy": self.gy}
        if self.scales is not None:
            named["scales"] = self.scales
        return named


@lru_cache(maxsize=64)
def written_layout(geometry: Geometry) -> ArenaLayout:
    """What the chain writes for a whole call, beside grad; row dots have a plane a column slice.

    d_dv leads: where it begins, the memory does.
    """
    count, slices, f32 = geometry.chunks, num_slices(geometry.head_dim), torch.float32
    writes, reads = (slices, count * geometry.chunk_writes), (slices, count * geometry.chunk_reads)
    parts = [
        Part("d_dv", f32, (count * geometry.chunk, geometry.head_dim)),
        Part("dpd", f32, writes),
        Part("out_eff", f32, writes),
        Part("out_g", f32, writes),
        Part("dq", f32, reads),
    ]
    return ArenaLayout(parts, alignment=256)


def allocate_operands(bank: Tensor, saved: Saved, call: Call) -> ChainOperands:
    """Buffers of the whole call; fill_operands writes what is neither saved nor an output."""
    geometry = call.geometry
    rows, f32 = (geometry.chunks, geometry.chunk, geometry.head_dim), torch.float32
    return ChainOperands(
        grad=empty_rows_like(bank, f32 if call.grad_bank_fp32 else bank.dtype),
        bank=bank,
        delta=saved.delta,
        d_u=bank.new_empty(rows, dtype=f32),
        x=saved.x,
        snap=saved.snapshot,
        scales=saved.scales,
        gy=bank.new_empty(rows, dtype=f32),
        written=written_layout(geometry).allocate(bank.device),
        records=saved.records,
    )


def fill_operands(
    operands: ChainOperands, saved: Saved, grad_readings: Tensor, geometry: Geometry
) -> None:
    """Clear grad, stage gy and write d_u = QX^T gy; grad_readings is [P, T, hd]."""
    gy = operands.gy
    with Beside(gy.device, worthwhile=operands.grad.nbytes >= _LARGE_BYTES) as side:
        with side.stream():
            operands.grad.zero_()
        stage_into(grad_readings, geometry, Segment(0, geometry.steps), gy)
        lower_transposed_product(saved.qx, gy, operands.d_u)
