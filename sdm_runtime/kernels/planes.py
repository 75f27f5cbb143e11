"""The slices of a row, and the sums of their planes."""

from __future__ import annotations

import torch

from sdm_runtime import _core
from sdm_runtime.tensor.arguments import flag, refs, wholes
from sdm_runtime.tensor.refs import tensor_ref
from sdm_runtime.tensor.written import launch_stream, raise_versions


def num_slices(hd: int) -> int:
    """Column slices of a row of ``hd`` columns: ``1 + (hd - 1) // 128``."""
    return 1 + (hd - 1) // 128


def plane_reduce(
    planes: torch.Tensor,
    out: torch.Tensor,
    *,
    factor: torch.Tensor | None = None,
    negate: bool = False,
    group: int = 1,
    num_tokens: int,
    num_parallel: int,
    chunk_size: int,
) -> None:
    """Add the slices' planes in slice order, times a factor; all steps at once.

    ``out[i] = f * ((planes[0][i] + planes[1][i]) + ...)``, ``f = factor[i // group]``, its sign
    flipped by ``negate``; without a factor the plain sum; 0 for padding tokens.

    Args:
        planes: float32 ``[num_slices, N*C*width]``, width = W or R entries a token.
        out: float32, N*C*width elements of any shape, apart from ``planes``.
        factor: float32, ``N*C*width / group`` elements of any shape.
        negate: Multiply by ``-factor``.
        group: Entries that share one factor (1..256).
        num_tokens: T.
        num_parallel: P.
        chunk_size: C.
    """
    given = None if factor is None else tensor_ref("[plane_reduce] factor", factor)
    sign = flag("plane_reduce", "negate", negate)
    groups, tokens, parallel, chunk = wholes(
        "plane_reduce",
        group=group,
        num_tokens=num_tokens,
        num_parallel=num_parallel,
        chunk_size=chunk_size,
    )
    planes_ref, out_ref = refs("plane_reduce", {"planes": planes, "out": out})
    stream = launch_stream("plane_reduce", planes.device)
    _core.plane_reduce(planes_ref, out_ref, given, sign, groups, tokens, parallel, chunk, stream)
    raise_versions((out,))
