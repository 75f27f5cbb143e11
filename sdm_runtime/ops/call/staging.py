"""Time-major staging: token t of chunk n is row ``n * C + t``, ragged tails padded with zeros."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.ops.call.geometry import Geometry, Segment


class Inputs(NamedTuple):
    """The caller's tensors as [P, T, .] views, still in their own dtypes and strides.

    v may be [B, T, H, hd] with P = B * H: head h of batch element b is sequence b*H + h.
    """

    k_idx: Tensor
    k_val: Tensor
    v: Tensor
    beta: Tensor
    g: Tensor
    q_idx: Tensor
    q_val: Tensor


class Chunks(NamedTuple):
    """What the recurrence reads of one segment; chunks lead, padding tokens hold zeros."""

    k: Tensor  # [N, C, W] f32, rounded to the bank's dtype
    q: Tensor  # [N, C, R] f32, rounded to the bank's dtype
    beta: Tensor  # [N, C] f32
    g: Tensor  # [N, C, W] f32
    q_rows: Tensor  # [N, C, R] int64, absolute bank rows


def as_sequences(x: Tensor, sequences: int) -> Tensor:
    """View [P*T, D] as [P, T, D]; others stay as they are."""
    return x if x.dim() != 2 else x.reshape(sequences, x.shape[0] // sequences, x.shape[1])


def heads_of(inputs: Inputs) -> int | None:
    """H of v [B, T, H, hd]; None of v [P, T, hd]."""
    return inputs.v.shape[2] if inputs.v.dim() == 4 else None


def rows_shape(geometry: Geometry, heads: int | None) -> tuple[int, ...]:
    """The shape of a caller's rows of hd: [P, T, hd], or with heads [P / heads, T, heads, hd]."""
    if heads is None:
        return geometry.sequences, geometry.tokens, geometry.head_dim
    return geometry.sequences // heads, geometry.tokens, heads, geometry.head_dim


def new_readings(bank: Tensor, inputs: Inputs, geometry: Geometry) -> Tensor:
    """Room for a call's readings: [P*T, hd], or [B, T, H, hd] where v is, of the bank's dtype.

    In its last shape: autograd would refuse to let the caller change a view in place.
    """
    shape = rows_shape(geometry, heads_of(inputs))
    return bank.new_empty(shape if len(shape) == 4 else (shape[0] * shape[1], shape[2]))


def stage(x: Tensor, geometry: Geometry, segment: Segment, dtype: torch.dtype) -> Tensor:
    """Cut x [P, T, D] or [B, T, H, D] into the segment's chunks: [steps * P, C, D], contiguous."""
    shape = (segment.steps * geometry.sequences, geometry.chunk, x.shape[-1])
    out = torch.empty(shape, dtype=dtype, device=x.device)
    stage_into(x, geometry, segment, out)
    return out


def stage_into(
    x: Tensor, geometry: Geometry, segment: Segment, out: Tensor, padding: int = 0
) -> None:
    """The same into out, rounding to its dtype; ragged tails hold `padding`."""
    begin, end = geometry.token_range(segment)
    chunk, steps = geometry.chunk, segment.steps
    target = _as_rows(out, x, geometry, segment)
    whole = (end - begin) // chunk
    cut = begin + whole * chunk
    # Cut nothing that is whole: a backward's device waits for these operations.
    source = x if whole * chunk == x.shape[1] else x[:, begin:cut]
    rows = target if whole == steps else target[:, :whole]
    rows.copy_(source.view(x.shape[0], whole, chunk, *x.shape[2:]))
    if whole < steps:
        target[:, whole, : end - cut] = x[:, cut:end]
        target[:, whole, end - cut :] = padding


def unstage(x: Tensor, out: Tensor, geometry: Geometry, segment: Segment) -> None:
    """Write a segment's chunks x [steps * P, C, D] into out, rounding to its dtype.

    out [P, T, D] or [B, T, H, D].
    """
    begin, end = geometry.token_range(segment)
    chunk = geometry.chunk
    source = _as_rows(x, out, geometry, segment)
    whole = (end - begin) // chunk
    cut = begin + whole * chunk
    target = out if whole * chunk == out.shape[1] else out[:, begin:cut]
    rows = source if whole == segment.steps else source[:, :whole]
    target.view(out.shape[0], whole, chunk, *out.shape[2:]).copy_(rows)
    if cut < end:
        out[:, cut:end] = source[:, whole, : end - cut]


def _as_rows(chunks: Tensor, rows: Tensor, geometry: Geometry, segment: Segment) -> Tensor:
    """View chunks [steps * P, C, D] in the order of rows, whose tokens are cut into chunks.

    [P, steps, C, D] for rows [P, T, D], and [B, steps, C, H, D] for rows [B, T, H, D].
    """
    steps, chunk, width = segment.steps, geometry.chunk, chunks.shape[2]
    if rows.dim() == 3:
        return chunks.view(steps, geometry.sequences, chunk, width).transpose(0, 1)
    batch, heads = rows.shape[0], rows.shape[2]
    return chunks.view(steps, batch, heads, chunk, width).permute(1, 0, 3, 2, 4)


def stage_chunks(
    inputs: Inputs, geometry: Geometry, segment: Segment, bank_dtype: torch.dtype
) -> Chunks:
    """Stage the inputs but v; weights take the bank's precision on entry."""
    f32 = torch.float32
    return Chunks(
        k=stage(inputs.k_val, geometry, segment, bank_dtype).to(f32),
        q=stage(inputs.q_val, geometry, segment, bank_dtype).to(f32),
        beta=stage(inputs.beta, geometry, segment, f32).squeeze(-1),
        g=stage(inputs.g, geometry, segment, f32).expand(-1, -1, geometry.writes),
        q_rows=stage(inputs.q_idx, geometry, segment, torch.int64),
    )
