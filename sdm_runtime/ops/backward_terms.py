"""What follows the chain: matrix products, then the gradients of the inputs (spec section 2)."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from sdm_runtime.ops.chain_operands import ChainOperands
from sdm_runtime.ops.chunk_kernels import (
    RowDots,
    WeightGradients,
    token_gradients,
    weight_gradients,
)
from sdm_runtime.ops.chunk_matrices import lower_products
from sdm_runtime.ops.forward_store import Saved
from sdm_runtime.ops.geometry import Geometry, Segment


class InputGradients(NamedTuple):
    """Of the inputs, [P, T, .], contiguous."""

    weights: WeightGradients
    v: Tensor
    beta: Tensor


def segment_gradients(
    segment: Segment,
    dots: RowDots,
    operands: ChainOperands,
    saved: Saved,
    geometry: Geometry,
    out: InputGradients,
) -> None:
    """Write the gradients of one segment's inputs, after the chain has run."""
    where = geometry.chunk_range(segment)
    d_u = operands.d_u[where]
    delta, innovation, gy = (
        x.view(geometry.chunks, geometry.chunk, -1)[where]
        for x in (saved.delta, saved.innovation, operands.gy)
    )
    beta = operands.beta.view(geometry.chunks, geometry.chunk)[where]

    # X^T d_delta = d_u and X u = delta turn the spec's dM into -tril(d_u delta^T, -1), and
    # d_beta's two sums into <d_u, innovation>.
    d_m = lower_products(d_u, delta)
    d_qk = lower_products(gy, delta)
    here = RowDots(*(x[where] for x in dots))
    events = saved.records.events[where]
    weight_gradients(events, geometry, segment, beta, d_m, d_qk, here, out.weights)
    token_gradients(segment, d_u, innovation, beta, out.v, out.beta)
