"""Which matrix product the backward's chain runs, and why."""

from __future__ import annotations

from sdm_runtime.ops.backward.operands import ChainOperands
from sdm_runtime.ops.call.geometry import Geometry
from sdm_runtime.ops.routes.step_chain import GemmChoice


def choose_gemm(operands: ChainOperands, geometry: Geometry, gemm: str) -> GemmChoice:
    """What the step is to be; gemm is "auto", "fixed" or "blas"."""
    if gemm == "fixed":
        return GemmChoice("gx_gemm", "asked for")
    if gemm == "blas":
        return GemmChoice("blas", "asked for")
    o = operands
    if o.d_u.device.type == "cpu":
        return GemmChoice("gx_gemm", "the host chain has no BLAS step")
    from sdm_runtime import qualify

    decision = qualify.decide_backward(o.d_u, o.x, o.d_dv, geometry.sequences)
    return GemmChoice("gx_gemm" if decision.matches else "blas", *decision[1:])
