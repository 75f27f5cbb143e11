"""Readings to merge."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from sdm_runtime.layer.readings import ReadingsNorm

F32, BF16 = torch.float32, torch.bfloat16
# B, T, H and hd: one column, a slice, parts of one and of two, more than a block's warps have.
ROWS = [
    (1, 1, 1, 1),
    (2, 3, 2, 64),
    (1, 1, 16, 128),
    (3, 1, 2, 130),
    (32, 1, 2, 1024),
    (1, 2, 2, 1156),
]
# Of the readings, the norm, the gate and the result; None: not there. The third is autocast's.
TYPES = [
    (BF16, BF16, BF16, BF16),
    (F32, F32, F32, F32),
    (BF16, F32, BF16, BF16),
    (F32, None, BF16, BF16),
    (BF16, BF16, None, BF16),
    (F32, None, None, F32),
]


class Merge(NamedTuple):
    """Arguments of merge_readings."""

    readings: Tensor
    norm: ReadingsNorm | None
    gate: Tensor | None
    dtype: torch.dtype


def merge_case(sizes: tuple[int, ...], types: tuple[Any, ...], gap: int, seed: int = 0) -> Merge:
    """Readings as the operation leaves them, [B, H, T, hd] turned; rows ``gap`` columns apart."""
    batches, tokens, heads, hd = sizes
    of_readings, of_norm, of_gate, of_merged = types
    gen = torch.Generator().manual_seed(seed)

    def draw(*shape: int, dtype: torch.dtype) -> Tensor:
        return (2 * torch.randn(*shape, generator=gen) + 1).to(dtype)

    readings = draw(batches, heads, tokens, hd + gap, dtype=of_readings)[..., :hd].transpose(1, 2)
    norm = gate = None
    if of_norm is not None:
        norm = ReadingsNorm(draw(hd, dtype=of_norm), draw(hd, dtype=of_norm), 1e-5)
    if of_gate is not None:
        gate = draw(batches, tokens, heads * hd + gap, dtype=of_gate)[..., : heads * hd]
    return Merge(readings, norm, gate, of_merged)
