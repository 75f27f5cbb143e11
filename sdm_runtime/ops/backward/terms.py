"""What follows the chain: matrix products, then the gradients of the inputs.

docs/step_chain.md, sections 2 and 5.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from sdm_runtime.kernels import num_slices
from sdm_runtime.ops.backward.operands import ChainOperands
from sdm_runtime.ops.backward.plane_sums import allocate_sums, sum_planes
from sdm_runtime.ops.backward.side_stream import SideStream
from sdm_runtime.ops.call.geometry import Geometry, Segment, part_of
from sdm_runtime.ops.chunks.chunk_kernels import (
    RowDots,
    WeightGradients,
    token_gradients,
    weight_gradients,
)
from sdm_runtime.ops.chunks.matrices import lower_products
from sdm_runtime.ops.forward.store import Saved


class InputGradients(NamedTuple):
    """Of the inputs, [P, T, .], contiguous."""

    weights: WeightGradients
    v: Tensor  # or [B, T, H, hd]
    beta: Tensor


class CellGradients(NamedTuple):
    """Of a segment's cells t' <= t, f32 [N, C, C]; the others are undefined."""

    d_m: Tensor  # d_u delta^T: minus the gradient of A over beta
    d_qk: Tensor  # gy delta^T: that of QK


def input_gradients(
    operands: ChainOperands, saved: Saved, geometry: Geometry, out: InputGradients
) -> None:
    """Write the gradients of the inputs, after the chain has run."""
    dots = allocate_sums(operands, geometry)
    segments = list(geometry.segments(cuda=operands.bank.is_cuda))
    # Memory bounds the sums and the tokens' gradients, arithmetic the cells of long rows.
    with SideStream(operands.bank.device, worthwhile=num_slices(geometry.head_dim) > 1) as side:
        with side.stream():
            sum_planes(operands, geometry, dots)
            _token_gradients(operands, saved, geometry, out)
        cells = _cell_gradients(segments[0], operands, saved, geometry)
    for segment in segments:
        if segment.first:
            cells = _cell_gradients(segment, operands, saved, geometry)
        _weight_gradients(segment, cells, dots, operands, saved, geometry, out)


def _cell_gradients(
    segment: Segment, operands: ChainOperands, saved: Saved, geometry: Geometry
) -> CellGradients:
    # X^T d_delta = d_u and X u = delta turn dM into -tril(d_u delta^T, -1).
    where = geometry.chunk_range(segment)
    delta, gy = part_of(saved.delta, where), part_of(operands.gy, where)
    d_u = part_of(operands.d_u, where)
    return CellGradients(lower_products(d_u, delta), lower_products(gy, delta))


def _weight_gradients(
    segment: Segment,
    cells: CellGradients,
    dots: RowDots,
    operands: ChainOperands,
    saved: Saved,
    geometry: Geometry,
    out: InputGradients,
) -> None:
    where = geometry.chunk_range(segment)
    beta = part_of(saved.records["beta"].view(geometry.chunks, geometry.chunk), where)
    here = RowDots(*(part_of(x, where) for x in dots))
    events = part_of(saved.records["events"], where)
    weight_gradients(events, geometry, segment, beta, *cells, here, out.weights)


def _token_gradients(
    operands: ChainOperands, saved: Saved, geometry: Geometry, out: InputGradients
) -> None:
    # d_beta's two sums are <d_u, innovation>.
    beta, whole = saved.records["beta"], Segment(0, geometry.steps)
    token_gradients(whole, operands.d_u, saved.innovation, beta, out.v, out.beta)
