"""Which matrix product the chain's second step is, and why."""

from __future__ import annotations

from typing import NamedTuple

from sdm_runtime import kernels
from sdm_runtime.ops.backward.operands import ChainOperands
from sdm_runtime.ops.call.geometry import Geometry
from sdm_runtime.plan.blas_step import BlasGemmStep
from sdm_runtime.plan.plan import Plan


class GemmChoice(NamedTuple):
    """For the dispatch record."""

    name: str  # "gx_gemm" or "blas"
    reason: str
    probe_us: float = 0.0


def plan_gemm(operands: ChainOperands, geometry: Geometry, name: str, *, pdl: bool) -> Plan:
    """The plan of all steps; name is "gx_gemm" or "blas"."""
    o, steps, streams = operands, geometry.steps, geometry.streams
    if name == "blas":
        return BlasGemmStep(o.d_u, o.x, o.d_dv, steps=steps, num_parallel=streams)
    return kernels.plan_gx_gemm(o.d_u, o.x, o.d_dv, steps=steps, num_parallel=streams, pdl=pdl)


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

    decision = qualify.decide_backward(o.d_u, o.x, o.d_dv, geometry.streams)
    return GemmChoice("gx_gemm" if decision.matches else "blas", *decision[1:])
