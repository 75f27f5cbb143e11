"""Which matrix product the chain's second step is, and why."""

from __future__ import annotations

from importlib.util import find_spec

from sdm_runtime import kernels
from sdm_runtime.blas_step import BlasGemmStep
from sdm_runtime.ops.chain_operands import ChainOperands
from sdm_runtime.ops.geometry import Geometry
from sdm_runtime.plans import Plan


def plan_gemm(
    operands: ChainOperands, geometry: Geometry, gemm: str, *, pdl: bool
) -> tuple[Plan, str, str]:
    """The plan, its name for the dispatch record ("gx_gemm" or "blas"), and the reason."""
    o, steps, streams = operands, geometry.steps, geometry.streams
    name, reason = _choose(o, geometry, gemm)
    if name == "blas":
        return BlasGemmStep(o.d_u, o.x, o.d_dv, steps=steps, num_parallel=streams), name, reason
    plan = kernels.plan_gx_gemm(o.d_u, o.x, o.d_dv, steps=steps, num_parallel=streams, pdl=pdl)
    return plan, name, reason


def _choose(operands: ChainOperands, geometry: Geometry, gemm: str) -> tuple[str, str]:
    if gemm == "fixed":
        return "gx_gemm", "asked for"
    if gemm == "blas":
        return "blas", "asked for"
    if operands.d_u.device.type == "cpu":
        return "gx_gemm", "the host chain has no BLAS step"
    if find_spec("sdm_runtime.qualify") is None:
        return "blas", "this build cannot prove gx_gemm equal to the BLAS"
    from sdm_runtime import qualify

    o = operands
    if qualify.matches_blas(o.d_u, o.x, o.d_dv, geometry.streams):
        return "gx_gemm", "proven equal to the BLAS here"
    return "blas", "not proven equal to the BLAS here, or not faster"
