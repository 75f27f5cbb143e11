"""What follows the chain: matrix products, then the gradients of the inputs.

docs/step_chain.md, sections 2 and 5.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.kernels import num_slices
from sdm_runtime.ops.backward.operands import ChainOperands
from sdm_runtime.ops.backward.plane_sums import allocate_sums, sum_planes
from sdm_runtime.ops.backward.side_stream import SideStream
from sdm_runtime.ops.call.geometry import Geometry, Segment, part_of
from sdm_runtime.ops.chunks.chunk_kernels import (
    RowDots,
    WeightGradients,
    WeightTerms,
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


class TermsRoom(NamedTuple):
    """Memory for what lies between the chain and the gradients; of the largest segment."""

    dots: RowDots  # of the whole call
    cells: CellGradients
    terms: WeightTerms


def allocate_terms(
    operands: ChainOperands, saved: Saved, geometry: Geometry, gates: int
) -> TermsRoom:
    """The memory; gates: of a token, 1 or W."""
    largest = next(geometry.segments(cuda=operands.bank.is_cuda))
    count = largest.steps * geometry.sequences
    d_m = saved.delta.new_empty((count, geometry.chunk, geometry.chunk))
    events = part_of(saved.records["events"], slice(0, count))
    return TermsRoom(
        dots=allocate_sums(operands, geometry),
        cells=CellGradients(d_m, torch.empty_like(d_m)),
        terms=WeightTerms.allocate(events, geometry, gates),
    )


def input_gradients(
    operands: ChainOperands, saved: Saved, geometry: Geometry, out: InputGradients, room: TermsRoom
) -> None:
    """Write the gradients of the inputs, after the chain has run."""
    segments = list(geometry.segments(cuda=operands.bank.is_cuda))
    # Memory bounds the sums and the tokens' gradients, arithmetic the cells of long rows.
    with SideStream(operands.bank.device, worthwhile=num_slices(geometry.head_dim) > 1) as side:
        with side.stream():
            sum_planes(operands, geometry, room.dots)
            _token_gradients(operands, saved, geometry, out)
        cells = _cell_gradients(segments[0], operands, saved, geometry, room)
    for segment in segments:
        if segment.first:
            cells = _cell_gradients(segment, operands, saved, geometry, room)
        _weight_gradients(segment, cells, saved, geometry, out, room)


def _cell_gradients(
    segment: Segment, operands: ChainOperands, saved: Saved, geometry: Geometry, room: TermsRoom
) -> CellGradients:
    # X^T d_delta = d_u and X u = delta turn dM into -tril(d_u delta^T, -1).
    where = geometry.chunk_range(segment)
    delta, gy = part_of(saved.delta, where), part_of(operands.gy, where)
    d_u, here = part_of(operands.d_u, where), slice(0, where.stop - where.start)
    cells = CellGradients(*(part_of(x, here) for x in room.cells))
    lower_products(d_u, delta, cells.d_m)
    lower_products(gy, delta, cells.d_qk)
    return cells


def _weight_gradients(
    segment: Segment,
    cells: CellGradients,
    saved: Saved,
    geometry: Geometry,
    out: InputGradients,
    room: TermsRoom,
) -> None:
    where = geometry.chunk_range(segment)
    beta = part_of(saved.records["beta"].view(geometry.chunks, geometry.chunk), where)
    dots = RowDots(*(part_of(x, where) for x in room.dots))
    events = part_of(saved.records["events"], where)
    terms = room.terms.first(where.stop - where.start, geometry)
    weight_gradients(events, geometry, segment, beta, *cells, dots, out.weights, terms)


def _token_gradients(
    operands: ChainOperands, saved: Saved, geometry: Geometry, out: InputGradients
) -> None:
    # d_beta's two sums are <d_u, innovation>.
    beta, whole = saved.records["beta"], Segment(0, geometry.steps)
    token_gradients(whole, operands.d_u, saved.innovation, beta, out.v, out.beta)
