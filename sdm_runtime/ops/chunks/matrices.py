"""The chunk's triangular matrices: X, and products that need one half of a square alone.

Products of long chunks are taken in bands of rows: the half above the diagonal costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from sdm_runtime.ops.chunks.products import product

_BAND = 128  # rows: smaller products run at a lower rate
_SOLVED_ALONE = 64  # rows: more of them the CPU's library cuts among many threads, with other bits


def unit_inverse(system: Tensor) -> Tensor:
    """X = (I + system)^-1 for strictly lower f32 [N, C, C].

    Every matrix has C * C floats to itself, in rows or in columns.
    """
    chunk = system.shape[1]
    if system.device.type != "cpu" or chunk <= _SOLVED_ALONE:
        return _solve(system)
    x = torch.zeros_like(system)
    for first in range(0, chunk, _SOLVED_ALONE):
        rows, above = slice(first, min(first + _SOLVED_ALONE, chunk)), slice(0, first)
        x[:, rows, rows] = corner = _solve(system[:, rows, rows]).contiguous()
        if first:
            left = product(system[:, rows, above], x[:, above, above])
            x[:, rows, above] = product(corner, left).neg_()
    return x


def _solve(lower: Tensor) -> Tensor:
    """(I + lower)^-1 in columns; lower's diagonal is not read."""
    columns = lower.new_zeros(lower.shape)
    columns.diagonal(dim1=1, dim2=2).fill_(1)
    x = columns.transpose(1, 2)
    torch.linalg.solve_triangular(lower, x, upper=False, unitriangular=True, out=x)
    return x


def scaled_transpose(x: Tensor, beta: Tensor) -> Tensor:
    """X diag(beta) of x [N, C, C] and beta [N, C, 1], transposed, as gx_gemm takes it."""
    return torch.mul(x.transpose(1, 2), beta, out=x.new_empty(x.shape))


def lower_products(a: Tensor, b: Tensor) -> Tensor:
    """The cells t' <= t of a b^T [N, C, C] for a and b [N, C, hd]; the others are undefined."""
    count, chunk, _ = a.shape
    b = b.transpose(1, 2)
    if chunk <= _BAND:
        return product(a, b)
    out = a.new_empty(count, chunk, chunk)
    for rows in _bands(chunk):
        product(a[:, rows], b[:, :, : rows.stop], out=out[:, rows, : rows.stop])
    return out


def lower_transposed_product(lower: Tensor, y: Tensor, out: Tensor) -> None:
    """Write lower^T y into out [N, C, hd] for lower-triangular [N, C, C] and y [N, C, hd]."""
    upper = lower.transpose(1, 2)
    if lower.shape[1] <= _BAND:
        product(upper, y, out=out)
        return
    for rows in _bands(lower.shape[1]):
        product(upper[:, rows, rows.start :], y[:, rows.start :], out=out[:, rows])


def _bands(chunk: int) -> Iterator[slice]:
    for first in range(0, chunk, _BAND):
        yield slice(first, min(first + _BAND, chunk))
