"""From the chain's row dots, one plane per column slice, to their sums."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from sdm_runtime import kernels
from sdm_runtime.ops.chain_operands import ChainOperands
from sdm_runtime.ops.chunk_kernels import RowDots
from sdm_runtime.ops.geometry import Geometry


def sum_planes(operands: ChainOperands, geometry: Geometry) -> RowDots:
    """Add the planes in slice order; a single plane is finished as it is."""
    o = operands
    planes = (o.dpd, o.out_eff, o.out_g, o.dq)
    if o.dpd.shape[0] == 1:
        return _by_chunk([x[0] for x in planes], geometry)
    sums = [torch.empty_like(x[0]) for x in planes]
    reduce = partial(
        kernels.plane_reduce,
        num_tokens=geometry.tokens,
        num_parallel=geometry.streams,
        chunk_size=geometry.chunk,
    )
    reduce(o.dpd, sums[0])
    reduce(o.out_eff, sums[1], factor=o.beta, negate=True, group=geometry.writes)
    assert o.cpe is not None  # the forward keeps it where there are several planes
    reduce(o.out_g, sums[2], factor=o.cpe)
    reduce(o.dq, sums[3])
    return _by_chunk(sums, geometry)


def _by_chunk(sums: list[Tensor], geometry: Geometry) -> RowDots:
    return RowDots(*(x.view(geometry.chunks, -1) for x in sums))
