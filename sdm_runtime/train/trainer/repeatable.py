"""What keeps a GPU's training steps the same bits from run to run.

Of the operations that a step is made of, two add in an order that differs from run to run on a GPU:
the gradient of ``nn.Embedding``, and some of cuDNN's algorithms for the gradients of a convolution.
The first has a replacement here, the second are ruled out. All others add in a fixed order: matrix
products (one process uses a stream, so cuBLAS repeats), sums, norms and their gradients, cross
entropy of [positions, symbols], clipping, AdamW, and the memory layer's own kernels, scatters (to
distinct places) and sorts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# Rows of one matrix product: bounds the memory of its one-hot operand, 4 bytes x symbols a row.
_ROWS_PER_PRODUCT = 16384


class RepeatableEmbedding(nn.Embedding):
    """``nn.Embedding`` of few symbols whose gradient adds in a fixed order on every device.

    The gradient is a matrix product with the one-hot symbols, [symbols, rows] x [rows, dim]: cheap
    for hundreds of symbols, no index decides a shape, and nothing waits for the device, so that it
    can be captured. A gradient that is not finite spreads from its symbol to all.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Map int64 symbols [..] to rows of the weight [.., dim]."""
        return cast(Tensor, _Lookup.apply(self.weight, input))  # type: ignore[no-untyped-call]


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, symbols: Tensor) -> Tensor:
        ctx.save_for_backward(symbols)
        ctx.count = weight.shape[0]
        return F.embedding(symbols, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (symbols,) = ctx.saved_tensors
        return sums_by_symbol(grad.flatten(0, -2), symbols.flatten(), ctx.count), None


def sums_by_symbol(rows: Tensor, symbols: Tensor, count: int) -> Tensor:
    """Return the sum of the rows of each symbol, added in an order that shapes alone decide.

    Args:
        rows: floating point [n, dim]; sums are in float32 at least.
        symbols: int64 [n], each in 0 .. count - 1.
        count: number of symbols.

    Returns:
        [count, dim] of the dtype of ``rows``; zeros for a symbol that has no row.
    """
    dtype = torch.promote_types(rows.dtype, torch.float32)
    sums = rows.new_zeros(count, rows.shape[1], dtype=dtype)
    every = torch.arange(count, device=symbols.device).unsqueeze(1)
    blocks = (torch.split(part, _ROWS_PER_PRODUCT) for part in (symbols, rows))
    for some, theirs in zip(*blocks, strict=True):
        sums.addmm_((every == some).to(dtype), theirs.to(dtype))
    return sums.to(rows.dtype)


@contextmanager
def repeatable_convolutions() -> Iterator[None]:
    """Let cuDNN take only algorithms that repeat, and choose them without timing; then as before.

    Without it cuDNN may take one for a convolution's gradients that adds in any order. A process
    has these settings once, for all threads: autograd's, which run a backward, follow them too.
    """
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark = before
