"""The step kernels, one step at once or recorded as a plan, and the sums of their planes.

Every function takes CPU tensors (the host twin runs) or tensors of one CUDA device, and works in
place on its outputs. No autograd, but the versions of what is written are raised: a graph that
saved it before refuses its backward. A launch and its plan go through the same checks: ValueError
or TypeError name the argument, the expected and the given value, and nothing is changed.
The arithmetic is fixed to the bit by the project's contract of the step chain.

Sizes: P streams (``num_parallel``), C tokens a chunk (``chunk_size``), W writes and R reads a
token, N = steps * P chunks; chunk ``ti*P + p`` is stream p's at step ``ti``, token t of chunk n is
row ``n*C + t``. Bank and grad rows are ``[rows, hd]``, the bank bfloat16 or float32, the grad of
the bank's type or float32. A row dot leaves one plane per column slice (:func:`num_slices`): an
output of row dots is float32 ``[num_slices, entries]``, or of any shape with that many elements
when there is one slice.
"""

from __future__ import annotations

import torch

from sdm_runtime import _core
from sdm_runtime.backward_kernels import gx_gds as gx_gds
from sdm_runtime.backward_kernels import gx_gemm as gx_gemm
from sdm_runtime.backward_kernels import gx_gwr as gx_gwr
from sdm_runtime.backward_kernels import gx_pa2 as gx_pa2
from sdm_runtime.backward_kernels import plan_gx_gds as plan_gx_gds
from sdm_runtime.backward_kernels import plan_gx_gemm as plan_gx_gemm
from sdm_runtime.backward_kernels import plan_gx_gwr as plan_gx_gwr
from sdm_runtime.backward_kernels import plan_gx_pa2 as plan_gx_pa2
from sdm_runtime.forward_kernels import fx_read as fx_read
from sdm_runtime.forward_kernels import fx_write as fx_write
from sdm_runtime.forward_kernels import plan_fx_read as plan_fx_read
from sdm_runtime.forward_kernels import plan_fx_write as plan_fx_write
from sdm_runtime.kernel_arguments import flag, refs, wholes
from sdm_runtime.tensors import tensor_ref
from sdm_runtime.written import launch_stream, raise_versions


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
    operands = {"planes": planes, "out": out}
    given = None if factor is None else tensor_ref("[plane_reduce] factor", factor)
    sign = flag("plane_reduce", "negate", negate)
    sizes = wholes(
        "plane_reduce",
        group=group,
        num_tokens=num_tokens,
        num_parallel=num_parallel,
        chunk_size=chunk_size,
    )
    read = refs("plane_reduce", operands)
    stream = launch_stream("plane_reduce", planes.device)
    _core.plane_reduce(*read, given, sign, *sizes, stream)
    raise_versions((out,))
