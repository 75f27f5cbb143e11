"""What follows the chain: matrix products, then the gradients of the inputs.

docs/step_chain.md, sections 2 and 5.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.kernels import num_slices
from sdm_runtime.ops.backward.operands import ChainOperands
from sdm_runtime.ops.backward.plane_sums import sum_planes
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
from sdm_runtime.tensor.arena import ArenaLayout, Part


class InputGradients(NamedTuple):
    """Of the inputs, [P, T, .], contiguous."""

    weights: WeightGradients
    v: Tensor  # or [B, T, H, hd]
    beta: Tensor


class CellGradients(NamedTuple):
    """Of a segment's cells t' <= t, f32 [N, C, C]; the others are undefined."""

    d_m: Tensor  # d_u delta^T: minus the gradient of A over beta
    d_qk: Tensor  # gy delta^T: that of QK


@lru_cache(maxsize=512)
def _layout(geometry: Geometry, chunks: int, gates: int) -> ArenaLayout:
    """What lies between the chain and the gradients, of segments of at most so many chunks."""
    f32, f64, chunk = torch.float32, torch.float64, geometry.chunk
    events = geometry.chunk_writes + geometry.chunk_reads
    shapes: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
        "terms": (f64, (chunks, events, 2)),
        "d_m": (f32, (chunks, chunk, chunk)),
        "d_qk": (f32, (chunks, chunk, chunk)),
    }
    if gates < geometry.writes:
        shapes["gates"] = f64, (chunks * chunk, geometry.writes)
    if num_slices(geometry.head_dim) > 1:  # the sums, of the whole call
        for name, entries in zip(
            RowDots._fields, (*[geometry.chunk_writes] * 3, geometry.chunk_reads), strict=True
        ):
            shapes[name] = f32, (geometry.chunks, entries)
    parts = [Part(name, dtype, shape) for name, (dtype, shape) in shapes.items()]
    return ArenaLayout(parts, alignment=256)


class TermsRoom:
    """Memory for what lies between the chain and the gradients: one allocation, taken before it.

    The host makes tensors of it behind the chain's launches.
    """

    def __init__(self, operands: ChainOperands, geometry: Geometry, gates: int) -> None:
        """Take the memory; gates: of a token, 1 or W."""
        largest = next(geometry.segments(cuda=operands.bank.is_cuda))
        chunks = largest.steps * geometry.sequences
        self._geometry = geometry
        self._arena = _layout(geometry, chunks, gates).allocate(operands.bank)

    def dots(self, operands: ChainOperands) -> RowDots:
        """Where the sums over planes go; a single plane is its own."""
        arena, chunks = self._arena, self._geometry.chunks
        if arena.get("dpd") is None:
            names = ("dpd", "out_eff", "out_g", "dq")
            return RowDots(*(operands.dots[name].view(chunks, -1) for name in names))
        return RowDots(*(arena[name] for name in RowDots._fields))

    def cells(self, chunks: int) -> CellGradients:
        """Of a segment of so many chunks."""
        here = slice(0, chunks)
        return CellGradients(*(part_of(self._arena[name], here) for name in ("d_m", "d_qk")))

    def terms(self, chunks: int) -> WeightTerms:
        """Likewise."""
        gates = self._arena.get("gates")
        return WeightTerms(
            part_of(self._arena["terms"], slice(0, chunks)),
            None if gates is None else part_of(gates, slice(0, chunks * self._geometry.chunk)),
        )


def input_gradients(
    operands: ChainOperands, saved: Saved, geometry: Geometry, out: InputGradients, room: TermsRoom
) -> None:
    """Write the gradients of the inputs, after the chain has run."""
    segments = list(geometry.segments(cuda=operands.bank.is_cuda))
    # Memory bounds the sums and the tokens' gradients, arithmetic the cells of long rows.
    with SideStream(operands.bank.device, worthwhile=num_slices(geometry.head_dim) > 1) as side:
        with side.stream():
            dots = room.dots(operands)
            sum_planes(operands, geometry, dots)
            _token_gradients(operands, saved, geometry, out)
        cells = _cell_gradients(segments[0], operands, saved, geometry, room)
    for segment in segments:
        if segment.first:
            cells = _cell_gradients(segment, operands, saved, geometry, room)
        _weight_gradients(segment, cells, dots, saved, geometry, out, room)


def _cell_gradients(
    segment: Segment, operands: ChainOperands, saved: Saved, geometry: Geometry, room: TermsRoom
) -> CellGradients:
    # X^T d_delta = d_u and X u = delta turn dM into -tril(d_u delta^T, -1).
    where = geometry.chunk_range(segment)
    delta, gy = part_of(saved.delta, where), part_of(operands.gy, where)
    d_u, cells = part_of(operands.d_u, where), room.cells(where.stop - where.start)
    lower_products(d_u, delta, cells.d_m)
    lower_products(gy, delta, cells.d_qk)
    return cells


def _weight_gradients(
    segment: Segment,
    cells: CellGradients,
    dots: RowDots,
    saved: Saved,
    geometry: Geometry,
    out: InputGradients,
    room: TermsRoom,
) -> None:
    where = geometry.chunk_range(segment)
    beta = part_of(saved.records["beta"].view(geometry.chunks, geometry.chunk), where)
    here = RowDots(*(part_of(x, where) for x in dots))
    events = part_of(saved.records["events"], where)
    terms = room.terms(where.stop - where.start)
    weight_gradients(events, geometry, segment, beta, *cells, here, out.weights, terms)


def _token_gradients(
    operands: ChainOperands, saved: Saved, geometry: Geometry, out: InputGradients
) -> None:
    # d_beta's two sums are <d_u, innovation>.
    beta, whole = saved.records["beta"], Segment(0, geometry.steps)
    token_gradients(whole, operands.d_u, saved.innovation, beta, out.v, out.beta)
