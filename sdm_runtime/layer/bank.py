"""The bank that one call of the layer advances."""

from __future__ import annotations

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


class _InitialBank(torch.autograd.Function):
    # Not repeat().to(dtype): its backward would sum over the batch in bfloat16, and the other
    # order would hold the copies in float32 besides.

    @staticmethod
    def forward(ctx: Any, memory: Tensor, batch: int, dtype: torch.dtype) -> Tensor:
        ctx.batch, ctx.dtype = batch, memory.dtype
        # Made in its final shape: autograd refuses to advance a view from inside a Function.
        bank = memory.new_empty((batch * memory.shape[0], memory.shape[1]), dtype=dtype)
        bank.view(batch, *memory.shape).copy_(memory)
        return bank

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        per_element = grad.view(ctx.batch, -1, grad.shape[-1])
        return per_element.sum(0, dtype=ctx.dtype), None, None
