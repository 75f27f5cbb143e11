"""The bank that one call of the layer advances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def initial_bank(memory: Tensor, batch: int, dtype: torch.dtype) -> Tensor:
    """A copy of the learned bank for every batch element.

    Args:
        memory: [H*S, hd], the parameter.
        batch: number of copies B.
        dtype: dtype of the copies, in which the operation runs.

    Returns:
        [B*H*S, hd], contiguous, never an alias of `memory`. The gradient of `memory` is the sum
        over the batch, in the precision of `memory`.
    """
    bank: Tensor = _InitialBank.apply(memory, batch, dtype)  # type: ignore[no-untyped-call]
    return bank


def no_readings(bank: Tensor, operands: Sequence[Tensor], values: Tensor) -> Tensor:
    """The readings of a call without tokens, in the bank's dtype and as the values [B, T, H, hd].

    They hang on the bank and the operands as any call's do: the backward gives all of them zeros,
    so that no parameter is left out where several processes add up their gradients.
    """
    parts = [t.flatten()[:0].sum() for t in (bank, *operands) if t.requires_grad]
    readings = bank.new_empty(values.shape)
    return readings + torch.stack([part.float() for part in parts]).sum() if parts else readings


class _InitialBank(torch.autograd.Function):
    # Not repeat().to(dtype): its backward would sum over the batch in bfloat16, and the other
    # order would hold the copies in float32 besides.

    @staticmethod
    def forward(ctx: Any, memory: Tensor, batch: int, dtype: torch.dtype) -> Tensor:
        ctx.copies, ctx.dtype = (batch, *memory.shape), memory.dtype
        # Made in its final shape: autograd refuses to advance a view from inside a Function.
        bank = memory.new_empty((batch * memory.shape[0], memory.shape[1]), dtype=dtype)
        bank.view(batch, *memory.shape).copy_(memory)
        return bank

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        copies = grad.view(ctx.copies)
        # Of one copy the sum would be another pass over the bank.
        total = copies[0].to(ctx.dtype) if len(copies) == 1 else copies.sum(0, dtype=ctx.dtype)
        return total, None, None
