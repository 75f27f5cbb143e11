"""Products with the chunk's triangular matrices, which need one half of a square alone.

Those of long chunks are taken in bands of rows: the half above the diagonal costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from sdm_runtime.ops.chunks.products import product

_BAND = 128  # rows: smaller products run at a lower rate


def lower_products(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Write the cells t' <= t of a b^T into out [N, C, C], for a and b [N, C, hd].

    Its other cells are undefined afterwards.
    """
    chunk = a.shape[1]
    b = b.transpose(1, 2)
    if chunk <= _BAND:
        product(a, b, out=out)
        return
    for rows in _bands(chunk):
        product(a[:, rows], b[:, :, : rows.stop], out=out[:, rows, : rows.stop])


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
