"""The library step of a chain: the framework's own FP32 batched GEMM, called by the executor."""

from __future__ import annotations

import torch

from sdm_runtime import _core
from sdm_runtime.memory_error import CudaOutOfMemoryError
from sdm_runtime.plan.plan import Plan
from sdm_runtime.tensor.arguments import refs, wholes
from sdm_runtime.tensor.refs import external_stream

_NO_MEMORY = "CUBLAS_STATUS_ALLOC_FAILED"  # of cublasCreate; torch raises a plain RuntimeError


class BlasGemmStep(Plan):
    """``d_u[n] += x[n].T @ d_dv[n]`` with the bits of ``torch.baddbmm``, as one plan of a chain.

    The executor makes the library call that ``torch.baddbmm(d_u, x.transpose(1, 2), d_dv,
    out=d_u)`` makes for the P chunks of a step: same operands, same strides, on torch's own handle
    with torch's precision settings and workspace. The function is found in the cuBLAS that torch
    has loaded.

    Args:
        d_u: float32 ``[N, C, hd]`` on a CUDA device, in place.
        x: float32 ``[N, C, C]``.
        d_dv: float32 ``[N*C, hd]`` or ``[N, C, hd]``.
        steps: Steps that the plan covers, at most ``N / num_parallel``.
        num_parallel: P, the number of sequences.

    Raises:
        TypeError, ValueError: An argument of another type, dtype, shape, layout or device; the host
            backend has no library step (its ``gx_gemm`` is the reference).
        CudaError: The device cannot be used.
    """

    def __init__(
        self,
        d_u: torch.Tensor,
        x: torch.Tensor,
        d_dv: torch.Tensor,
        *,
        steps: int,
        num_parallel: int,
    ):
        """See the class."""
        operands = {"d_u": d_u, "x": x, "d_dv": d_dv}
        parallel, covered = wholes("blas_gemm", num_parallel=num_parallel, steps=steps)
        d_u_ref, x_ref, d_dv_ref = refs("blas_gemm", operands)
        bound = _core.plan_blas_gemm(d_u_ref, x_ref, d_dv_ref, parallel, covered)
        super().__init__(bound.plan(), bound, operands)


def blas_handle(device: torch.device, stream: torch.cuda.Stream | int | None = None) -> int:
    """torch's cuBLAS handle of this thread and device, set up as torch does before a call.

    That is: on ``stream`` (None: the current one), with torch's math mode and workspace for it.
    Torch sets the handle anew before each call of its own, so nothing has to be reset.

    Raises:
        CudaOutOfMemoryError: There is no memory for a handle or its workspace; nothing was issued.
    """
    if isinstance(stream, int):
        stream = external_stream(device, stream)
    try:
        with torch.cuda.device(device), torch.cuda.stream(stream):
            return int(torch.cuda.current_blas_handle())  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and _NO_MEMORY not in str(error):
            raise
        failure = CudaOutOfMemoryError(f"cuBLAS handle of {device}: {error}")
        failure.issued = 0
        raise failure from error
