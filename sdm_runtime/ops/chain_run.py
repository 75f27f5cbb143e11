"""The step chain of a backward: four plans, built once, run by one call."""

from __future__ import annotations

from time import perf_counter_ns

from sdm_runtime import kernels
from sdm_runtime.chain import StepChain
from sdm_runtime.dispatch import Dispatch, offer_chain, record
from sdm_runtime.ops.call import Call
from sdm_runtime.ops.chain_operands import ChainOperands
from sdm_runtime.ops.gemm_step import plan_gemm
from sdm_runtime.runtime import supports_pdl


def build_chain(operands: ChainOperands, call: Call) -> StepChain:
    """Plan gx_gwr -> gx_gemm -> gx_pa2 -> gx_gds over all steps, and record the dispatch."""
    begin = perf_counter_ns()
    o, geometry = operands, call.geometry
    steps, streams, chunk = geometry.steps, geometry.streams, geometry.chunk
    pdl = supports_pdl(o.bank.device)
    gwr = kernels.plan_gx_gwr(
        o.grad,
        o.delta,
        o.pd,
        o.slots,
        o.d_dv,
        o.dpd,
        steps=steps,
        num_parallel=streams,
        chunk_size=chunk,
        num_tokens=geometry.tokens,
        pdl=pdl,
    )
    gemm, choice = plan_gemm(o, geometry, call.gemm, pdl=pdl)
    pa2 = kernels.plan_gx_pa2(
        o.grad,
        o.bank,
        o.snap,
        o.d_u,
        o.beta,
        None,  # the words of the records alone: no launch reads them
        o.rec,
        o.out_eff,
        o.out_g,
        steps=steps,
        num_parallel=streams,
        chunk_size=chunk,
        num_writes=geometry.writes,
        bpre=o.bpre,
        scales=o.scales,
        pdl=pdl,
    )
    gds = kernels.plan_gx_gds(
        o.grad,
        o.bank,
        o.gy,
        o.qrec,
        o.dq,
        steps=steps,
        num_parallel=streams,
        chunk_size=chunk,
        num_reads=geometry.reads,
        pdl=pdl,
    )
    chain = StepChain([gwr, gemm, pa2, gds], steps)
    plan_us = (perf_counter_ns() - begin) / 1e3 - choice.probe_us
    record(
        Dispatch(
            op="sdm_write_read.backward",
            route="chain",
            backend=chain.backend,
            gemm=choice.name,
            gemm_reason=choice.reason,
            gemm_probe_us=choice.probe_us,
            pdl=pdl,
            geometry=call.describe(),
            launches=chain.launches,
            plan_us=plan_us,
        )
    )
    offer_chain(chain)
    return chain
