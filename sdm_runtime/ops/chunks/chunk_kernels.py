"""The kernels that take all chunks of a segment at once, around the step chains.

Each is a launch on a device (chunk_gradients one for each of its passes where chunks are few or
large) and a loop over chunks on the CPU, from the same source. A group of events of one slot is
walked by one thread, front to back: no result depends on threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime import _core
from sdm_runtime.ops.call.geometry import Geometry, Segment
from sdm_runtime.ops.call.outside_slots import outside_words
from sdm_runtime.ops.call.staging import Inputs
from sdm_runtime.ops.chunks.records import ChainRecords
from sdm_runtime.tensor.dtypes import KERNEL_DTYPES
from sdm_runtime.tensor.refs import current_stream, operand_refs


class EventOrder(NamedTuple):
    """Every chunk's writes and reads in one stable order by slot; E = C * (W + R).

    A chunk's events are staged token by token, a token's writes before its reads.
    """

    sorted_slots: Tensor  # int32 [N, E]: ascending bank rows, then -1: slots outside, then padding
    order: Tensor  # int32 [N, E]: staged places within the chunk


class ChunkEvents(NamedTuple):
    """Every chunk's writes and reads by slot; E = C * (W + R)."""

    events: Tensor  # f64 [N, E, 2]: log sum; bits of the f32 weight and of the event's word
    places: Tensor  # int32 [N, E]: where each staged event stands in that list; ~ of it: no pairs
    beta: Tensor  # f32 [N*C], staged


class RowDots(NamedTuple):
    """What a chain leaves for each entry, f32 [N, C*W] (or C*R), in staged order."""

    dpd: Tensor  # <G, delta>
    dkeff: Tensor  # -beta <d_u, M0>
    d_total: Tensor  # cpe <G, M0>, the same for all writes of a slot
    dqeff: Tensor  # <gy, M0>


class StepRecords(NamedTuple):
    """The forward's operands that follow from the inputs; n = C*W."""

    # int32 [N*C, W+R, 2]: slot and weight, -keff of a write, qeff of a read; -1 and -0: no slot
    row_weights: Tensor
    updates: Tensor  # int32 [N, n, 4], write entries sorted by slot, with pd and cpe


class WeightGradients(NamedTuple):
    """Where the gradients go, [P, T, .] of float32 or bfloat16, contiguous."""

    k: Tensor
    q: Tensor
    g: Tensor  # [P, T, 1] or [P, T, W]


class WeightTerms(NamedTuple):
    """Where weight_gradients works, of N chunks with E events."""

    terms: Tensor  # f64 [N, E, 2]
    gates: Tensor | None  # f64 [N*C, W]: each write's part of its token's gate


def kernel_dtype(dtype: torch.dtype) -> torch.dtype:
    """The floating dtype that stands in for `dtype` in the kernels."""
    return dtype if dtype in KERNEL_DTYPES else torch.float32


def kernel_inputs(inputs: Inputs) -> Inputs:
    """The inputs but v as the kernels take them: contiguous, in a kernel's dtype."""

    def fit(x: Tensor) -> Tensor:
        return (x.to(kernel_dtype(x.dtype)) if x.is_floating_point() else x).contiguous()

    k_idx, k_val, v, beta, g, q_idx, q_val = inputs
    return Inputs(fit(k_idx), fit(k_val), v, fit(beta), fit(g), fit(q_idx), fit(q_val))


def event_order(inputs: Inputs, geometry: Geometry, segment: Segment) -> EventOrder:
    """Sort a segment's events by slot. inputs as kernel_inputs gives them, of which indices count.

    Events whose slot is outside its sequence's rows come behind all others, as those of padding do,
    and set the flag of a CUDA device.
    """
    count = segment.steps * geometry.sequences
    events = geometry.chunk_writes + geometry.chunk_reads
    out = EventOrder(*(inputs.k_idx.new_empty(count, events, dtype=torch.int32) for _ in range(2)))
    operands = {"k_idx": inputs.k_idx, "q_idx": inputs.q_idx, **out._asdict()}
    if (words := outside_words(inputs.k_idx.device)) is not None:
        operands["outside"] = words
    sizes = (geometry.slots, geometry.bank_rows, geometry.chunk, segment.first)
    _launch(_core.event_order, operands, *sizes)
    return out


def prepare_chunks(
    inputs: Inputs,
    geometry: Geometry,
    segment: Segment,
    order: EventOrder,
    bank_dtype: torch.dtype,
    records: ChainRecords | None = None,
) -> tuple[ChunkEvents, StepRecords]:
    """Log sums and weights of a segment's events; with `records`, into them, and all of them.

    inputs as kernel_inputs gives them.
    """
    count, events_of_chunk = order.order.shape
    rows, entries = count * geometry.chunk, geometry.writes + geometry.reads

    def new(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return order.order.new_empty(shape, dtype=dtype)

    steps = StepRecords(
        row_weights=new(rows, entries, 2), updates=new(count, geometry.chunk_writes, 4)
    )
    chain: dict[str, Tensor] | None = None
    if records is None:
        events = new(count, events_of_chunk, 2, dtype=torch.float64)
        beta = new(rows, dtype=torch.float32)
    else:
        chain = {k: x for k, x in records._asdict().items() if x is not None}
        events, beta = chain.pop("events"), chain.pop("beta")
    places = new(count, events_of_chunk)
    operands = {k: getattr(inputs, k) for k in ("k_val", "q_val", "beta", "g")}
    operands |= {**order._asdict(), "events": events, "places": places, "beta_rows": beta}
    bf16 = bank_dtype == torch.bfloat16
    sizes = (geometry.chunk, segment.first, bf16)
    _launch(_core.chunk_prepare, operands, chain, steps._asdict(), *sizes)
    return ChunkEvents(events, places, beta), steps


class PairMatrices(NamedTuple):
    """f32 [N, C, C] each, zero where no slot is shared."""

    a: Tensor | None  # A (docs/step_chain.md, section 2)
    system: Tensor  # diag(beta) A
    qk: Tensor


def pair_matrices(chunks: ChunkEvents, geometry: Geometry, *, with_a: bool) -> PairMatrices:
    """What tokens share through the slots that they write and read; A itself where it is needed.

    The decays of a pair do not factor safely (exp(-L) overflows), so this is not a matrix product:
    each row walks back from its entries through their slots' events.
    """
    count, device = chunks.events.shape[0], chunks.events.device
    shape = (count, geometry.chunk, geometry.chunk)
    system = torch.empty(shape, dtype=torch.float32, device=device)
    qk = torch.empty_like(system)
    operands = {"events": chunks.events, "places": chunks.places, "beta_rows": chunks.beta}
    operands |= {"system": system, "qk": qk}
    if with_a:
        operands["a"] = torch.empty_like(system)
    _launch(_core.pair_matrices, operands, geometry.writes)
    return PairMatrices(operands.get("a"), system, qk)


def chunk_inverse(pairs: PairMatrices, beta: Tensor, x: Tensor | None, qx: Tensor | None) -> Tensor:
    """Write X = (I + system)^-1 into x and QK X into qx; return X diag(beta), as gx_gemm takes it.

    All f32 [N, C, C], zero where the triangles are; beta f32 [N*C] staged. What the result has at
    [j, i] is beta_j X[i, j]. Without x and qx it alone is made.
    """
    operands = {"system": pairs.system, "qk": pairs.qk, "beta": beta}
    operands |= {k: kept for k, kept in (("x", x), ("qx", qx)) if kept is not None}
    scaled = operands["scaled"] = torch.empty_like(pairs.system)
    _launch(_core.chunk_inverse, operands)
    return scaled


def chunk_readings(
    segment: Segment, reading: Tensor, qk: Tensor, delta: Tensor, readings: Tensor
) -> None:
    """Write a segment's readings, reading + QK delta, rounded to their dtype; padding has none.

    reading, of the bank before each chunk, and delta f32 [N, C, hd]; qk f32 [N, C, C], of which
    what lies on and below the diagonal counts. readings [P, T, hd] or [B, T, H, hd] of float32 or
    bfloat16, contiguous.
    """
    operands = {"reading": reading, "qk": qk, "delta": delta, "readings": readings}
    _launch(_core.chunk_readings, operands, segment.first)


def weight_gradients(
    events: Tensor,
    geometry: Geometry,
    segment: Segment,
    beta: Tensor,
    d_m: Tensor,
    d_qk: Tensor,
    dots: RowDots,
    out: WeightGradients,
    room: WeightTerms,
) -> None:
    """Write a segment's gradients of k_val, q_val and g; padding has none.

    events as prepare_chunks leaves them; beta f32 [N*C] staged; d_m = d_u delta^T, of which
    -diag(beta) makes the gradient of A, and d_qk = gy delta^T, f32 [N, C, C] (cells without a pair
    are not used). float64 inside.
    """
    operands = {"events": events, "beta": beta, "d_m": d_m, "d_qk": d_qk, **dots._asdict()}
    operands |= {"terms": room.terms, "dk": out.k, "dq": out.q, "dg": out.g}
    if room.gates is not None:
        operands["gates"] = room.gates
    _launch(_core.chunk_gradients, operands, geometry.chunk, segment.first)


def token_gradients(
    segment: Segment, d_u: Tensor, innovation: Tensor, beta: Tensor, d_v: Tensor, d_beta: Tensor
) -> None:
    """Write a segment's d_v = beta * d_u and d_beta = <d_u, innovation>; padding has none.

    d_u and innovation f32 [N, C, hd], beta f32 [N*C] staged; d_v [P, T, hd] or [B, T, H, hd], and
    d_beta [P, T, 1], of float32 or bfloat16, contiguous.
    """
    operands = {"d_u": d_u, "innovation": innovation, "beta": beta, "dv": d_v, "dbeta": d_beta}
    _launch(_core.token_gradients, operands, segment.first)


def _launch(
    kernel: Callable[..., None],
    operands: dict[str, Tensor],
    *others: dict[str, Tensor] | int | None,
) -> None:
    """Run a kernel on the current stream of its operands; a dict among the others holds more."""
    more = (operand_refs(x) if isinstance(x, dict) else x for x in others)
    device = next(iter(operands.values())).device
    kernel(operand_refs(operands), *more, current_stream(device))
