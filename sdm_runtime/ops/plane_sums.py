"""From the chain's row dots, one plane per column slice, to their sums."""

from __future__ import annotations

from functools import partial

import torch

from sdm_runtime import kernels
from sdm_runtime.ops.chain_operands import ChainOperands
from sdm_runtime.ops.chunk_kernels import RowDots
from sdm_runtime.ops.geometry import Geometry


def allocate_sums(operands: ChainOperands, geometry: Geometry) -> RowDots:
    """Room for the sums; a single plane is its own, and finished as it is."""
    o = operands
    planes = [x[0] for x in (o.dpd, o.out_eff, o.out_g, o.dq)]
    sums = planes if o.dpd.shape[0] == 1 else [torch.empty_like(x) for x in planes]
    return RowDots(*(x.view(geometry.chunks, -1) for x in sums))


def sum_planes(operands: ChainOperands, geometry: Geometry, sums: RowDots) -> None:
    """Add the planes in slice order, if there are several."""
    o = operands
    if o.dpd.shape[0] == 1:
        return
    reduce = partial(
        kernels.plane_reduce,
        num_tokens=geometry.tokens,
        num_parallel=geometry.streams,
        chunk_size=geometry.chunk,
    )
    reduce(o.dpd, sums.dpd)
    reduce(o.out_eff, sums.dkeff, factor=o.beta, negate=True, group=geometry.writes)
    assert o.cpe is not None  # the forward keeps it where there are several planes
    reduce(o.out_g, sums.d_total, factor=o.cpe)
    reduce(o.dq, sums.dqeff)
