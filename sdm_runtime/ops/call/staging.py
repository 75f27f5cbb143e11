"""Time-major staging: token t of chunk n is row ``n * C + t``, ragged tails padded with zeros."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.ops.call.geometry import Geometry, Segment


class Inputs(NamedTuple):
    """The caller's tensors as [P, T, .] views, still in their own dtypes."""

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
    """View [P, T, D] or [P*T, D] as [P, T, D]."""
    return x if x.dim() == 3 else x.reshape(sequences, x.shape[0] // sequences, x.shape[1])


def stage(x: Tensor, geometry: Geometry, segment: Segment, dtype: torch.dtype) -> Tensor:
    """Cut x [P, T, D] into the segment's chunks: [steps * P, C, D] of dtype, contiguous."""
    shape = (segment.steps * geometry.sequences, geometry.chunk, x.shape[2])
    out = torch.empty(shape, dtype=dtype, device=x.device)
    stage_into(x, geometry, segment, out)
    return out


def stage_into(
    x: Tensor, geometry: Geometry, segment: Segment, out: Tensor, padding: int = 0
) -> None:
    """The same into out, rounding to its dtype; ragged tails hold `padding`."""
    begin, end = geometry.token_range(segment)
    chunk, steps = geometry.chunk, segment.steps
    target = out.view(steps, geometry.sequences, chunk, x.shape[2]).transpose(0, 1)
    whole = (end - begin) // chunk
    cut = begin + whole * chunk
    # Cut nothing that is whole: a backward's device waits for these operations.
    source = x if whole * chunk == x.shape[1] else x[:, begin:cut]
    rows = target if whole == steps else target[:, :whole]
    rows.copy_(source.view(x.shape[0], whole, chunk, x.shape[2]))
    if whole < steps:
        target[:, whole, : end - cut] = x[:, cut:end]
        target[:, whole, end - cut :] = padding


def unstage(x: Tensor, out: Tensor, geometry: Geometry, segment: Segment) -> None:
    """Write a segment's rows x [steps * P, C, D] into out [P, T, D], rounding to its dtype."""
    begin, end = geometry.token_range(segment)
    chunk = geometry.chunk
    source = x.view(segment.steps, geometry.sequences, chunk, x.shape[2]).transpose(0, 1)
    whole = (end - begin) // chunk
    cut = begin + whole * chunk
    target = out if whole * chunk == out.shape[1] else out[:, begin:cut]
    rows = source if whole == segment.steps else source[:, :whole]
    target.view(out.shape[0], whole, chunk, out.shape[2]).copy_(rows)
    if cut < end:
        out[:, cut:end] = source[:, whole, : end - cut]


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
