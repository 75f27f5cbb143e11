"""From the chain's row dots, one plane per column slice, to their sums."""

from __future__ import annotations

from functools import partial

from sdm_runtime import kernels
from sdm_runtime.ops.backward.operands import ChainOperands
from sdm_runtime.ops.call.geometry import Geometry
from sdm_runtime.ops.chunks.chunk_kernels import RowDots


def sum_planes(operands: ChainOperands, geometry: Geometry, sums: RowDots) -> None:
    """Add the planes in slice order, if there are several."""
    dots, records = operands.dots, operands.records
    if dots["dpd"].shape[0] == 1:
        return
    reduce = partial(
        kernels.plane_reduce,
        num_tokens=geometry.tokens,
        num_parallel=geometry.sequences,
        chunk_size=geometry.chunk,
    )
    reduce(dots["dpd"], sums.dpd)
    beta, cpe = records["beta"], records["cpe"]
    reduce(dots["out_eff"], sums.dkeff, factor=beta, negate=True, group=geometry.writes)
    reduce(dots["out_g"], sums.d_total, factor=cpe)
    reduce(dots["dq"], sums.dqeff)
