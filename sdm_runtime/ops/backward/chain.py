"""The backward's step chain: gx_gwr -> gx_gemm -> gx_pa2 -> gx_gds, the steps descending."""

from __future__ import annotations

from time import perf_counter_ns

from sdm_runtime.ops.backward.gemm_step import choose_gemm
from sdm_runtime.ops.backward.operands import ChainOperands
from sdm_runtime.ops.call.call import Call
from sdm_runtime.ops.routes.step_chain import GEMM, PassChain, StepSizes, step_chain

KERNELS = ("gx_gwr", GEMM, "gx_pa2", "gx_gds")


def build_chain(operands: ChainOperands, call: Call) -> PassChain:
    """The chain over all steps of a call."""
    begin = perf_counter_ns()
    geometry, bank = call.geometry, operands.bank
    return step_chain(
        KERNELS,
        operands.tensors(),
        StepSizes.of(geometry, geometry.tokens, snapshots=True),
        steps=geometry.steps,
        order="descending",
        kind=(geometry.bank_rows, geometry.head_dim, bank.dtype, call.form, call.grad_bank_fp32),
        gemm=choose_gemm(operands, geometry, call.gemm),
        arenas=(operands.dots, operands.records),
        snap_format=call.form.rows,
        begin=begin,
    )
