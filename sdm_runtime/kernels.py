"""The step kernels: one step at once, or recorded as a plan.

Every function takes CPU tensors (the host twin runs) or tensors of one CUDA device, and works in
place on its outputs. No autograd. A launch and its plan go through the same checks: ValueError or
TypeError name the argument, the expected and the given value, and nothing is changed.
The arithmetic is fixed to the bit by the project's contract of the step chain.
"""

from __future__ import annotations

import torch

from sdm_runtime import _core
from sdm_runtime.plans import Plan
from sdm_runtime.tensors import current_stream, tensor_ref


def num_slices(hd: int) -> int:
    """Column slices of a row of ``hd`` columns: ``1 + (hd - 1) // 128``."""
    return 1 + (hd - 1) // 128


def gx_gemm(
    d_u: torch.Tensor, x: torch.Tensor, d_dv: torch.Tensor, *, ti: int, num_parallel: int
) -> None:
    """Add ``x[n].T @ d_dv[n]`` to ``d_u[n]`` for the chunks n of step ``ti``, in a fixed order.

    Each element is one chain of fused multiply-adds over j = 0..C-1, from +0, then one addition.

    Args:
        d_u: float32 ``[N, C, hd]``, in place.
        x: float32 ``[N, C, C]``.
        d_dv: float32 ``[N*C, hd]`` or ``[N, C, hd]``.
        ti: The step: chunks ``ti*P .. ti*P + P-1``.
        num_parallel: P, the number of streams.
    """
    _core.gx_gemm(
        tensor_ref("d_u", d_u),
        tensor_ref("x", x),
        tensor_ref("d_dv", d_dv),
        num_parallel,
        ti,
        current_stream(d_u.device),
    )


def plan_gx_gemm(
    d_u: torch.Tensor,
    x: torch.Tensor,
    d_dv: torch.Tensor,
    *,
    steps: int,
    num_parallel: int,
    pdl: bool = False,
) -> Plan:
    """Record :func:`gx_gemm` for the steps ``0..steps-1``; ``pdl`` asks for programmatic launch."""
    operands = {"d_u": d_u, "x": x, "d_dv": d_dv}
    refs = [tensor_ref(name, tensor) for name, tensor in operands.items()]
    return Plan._recorded(_core.plan_gx_gemm(*refs, num_parallel, steps, pdl), operands)
