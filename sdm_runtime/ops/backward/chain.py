"""The step chain of a backward: four plans, recorded for the first call of a kind, then bound."""

from __future__ import annotations

from time import perf_counter_ns
from typing import NamedTuple

from sdm_runtime import kernels
from sdm_runtime.dispatch import Dispatch, offer_chain, record
from sdm_runtime.machine.backends import supports_pdl
from sdm_runtime.ops.backward.gemm_step import GemmChoice, choose_gemm, plan_gemm
from sdm_runtime.ops.backward.operands import ChainOperands
from sdm_runtime.ops.call.call import Call
from sdm_runtime.ops.routes.bound_chains import bound_chain
from sdm_runtime.plan.chain import StepChain


class ChainRun(NamedTuple):
    """A chain that is ready to run, and what it is."""

    chain: StepChain
    call: Call
    gemm: GemmChoice
    pdl: bool
    plan_us: float

    def run(self) -> None:
        """Run it, then record the dispatch, while the device works."""
        self.chain.run()
        record(
            Dispatch(
                op="sdm_write_read.backward",
                route="chain",
                backend=self.chain.backend,
                gemm=self.gemm.name,
                gemm_reason=self.gemm.reason,
                gemm_probe_us=self.gemm.probe_us,
                pdl=self.pdl,
                geometry=self.call.describe(),
                launches=self.chain.launches,
                plan_us=self.plan_us,
            )
        )
        offer_chain(self.chain)


def build_chain(operands: ChainOperands, call: Call) -> ChainRun:
    """The chain gx_gwr -> gx_gemm -> gx_pa2 -> gx_gds over all steps."""
    begin = perf_counter_ns()
    bank = operands.bank
    pdl = supports_pdl(bank.device)
    choice = choose_gemm(operands, call.geometry, call.gemm)
    chain = bound_chain(
        ("backward", call, bank.dtype, bank.device, choice.name, pdl),
        operands.tensors(),
        lambda: _record_plans(operands, call, choice.name, pdl),
        (operands.dots, operands.records),
    )
    plan_us = (perf_counter_ns() - begin) / 1e3 - choice.probe_us
    return ChainRun(chain, call, choice, pdl, plan_us)


def _record_plans(operands: ChainOperands, call: Call, gemm: str, pdl: bool) -> StepChain:
    o, geometry = operands, call.geometry
    dots, records = o.dots, o.records
    steps, streams, chunk = geometry.steps, geometry.streams, geometry.chunk
    gwr = kernels.plan_gx_gwr(
        o.grad,
        o.delta,
        records["pd"],
        records["slots"],
        o.d_dv,
        dots["dpd"],
        steps=steps,
        num_parallel=streams,
        chunk_size=chunk,
        num_tokens=geometry.tokens,
        pdl=pdl,
    )
    product = plan_gemm(o, geometry, gemm, pdl=pdl)
    pa2 = kernels.plan_gx_pa2(
        o.grad,
        o.bank,
        o.snap,
        o.d_u,
        records["beta"],
        None,  # the words of the records alone: no launch reads them
        records["rec"],
        dots["out_eff"],
        dots["out_g"],
        steps=steps,
        num_parallel=streams,
        chunk_size=chunk,
        num_writes=geometry.writes,
        bpre=records["bpre"],
        scales=o.scales,
        pdl=pdl,
    )
    gds = kernels.plan_gx_gds(
        o.grad,
        o.bank,
        o.gy,
        records["qrec"],
        dots["dq"],
        steps=steps,
        num_parallel=streams,
        chunk_size=chunk,
        num_reads=geometry.reads,
        pdl=pdl,
    )
    return StepChain([gwr, product, pa2, gds], steps)
