"""The forward's step chain: fx_read -> gx_gemm -> fx_write, the steps of a segment ascending."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import NamedTuple

from torch import Tensor

from sdm_runtime import kernels
from sdm_runtime.machine.backends import supports_pdl
from sdm_runtime.ops.call.geometry import Geometry, Segment
from sdm_runtime.ops.forward.readback import reads_are_free
from sdm_runtime.ops.forward.token_step import TokenStep, all_finite
from sdm_runtime.ops.routes.bound_chains import bound_chain
from sdm_runtime.plan.chain import StepChain
from sdm_runtime.plan.plan import Plan


class StepOperands(NamedTuple):
    """Of a segment's G chunks, n = C*W writes each; names as in sdm_runtime.kernels."""

    bank: Tensor  # [rows, hd]
    v: Tensor  # [G, C, hd] of the bank's dtype
    row_weights: Tensor  # int32 [G*C, W+R, 2]
    updates: Tensor  # int32 [G, n, 4]
    x: Tensor  # f32 [G, C, C]: beta_j X[i, j] at [j, i]
    residual: Tensor  # f32 [G, C, hd]: v minus the answer of the bank before the step
    reading: Tensor  # f32 [G, C, hd], of the bank before the step
    delta: Tensor  # f32 [G, C, hd], zeros before the steps
    snap: Tensor | None  # [G*n, hd] of the bank's dtype
    bpre: Tensor | None  # int32 [G, ceil(n/32) + 1]


class StepsDone(NamedTuple):
    """What a segment's steps took."""

    again: dict[int, TokenStep]  # the steps that were run token by token
    launches: int
    plan_us: float


def run_steps(
    operands: StepOperands,
    qx: Tensor,
    geometry: Geometry,
    segment: Segment,
    token_by_token: Callable[[int], TokenStep],
) -> StepsDone:
    """Advance the bank over a segment's steps; residual, reading, delta and snap are written.

    token_by_token(step of the segment) runs a step that is not finite again, on the bank before it;
    qx [G, C, C] will make the readings of the chunks' own writes.
    """
    begin = perf_counter_ns()
    kernels_of_step = _Kernels(operands, geometry, segment)
    if reads_are_free(operands.bank):
        answers, writes = kernels_of_step.chain("read", "gemm"), kernels_of_step.chain("write")
        plan_us = (perf_counter_ns() - begin) / 1e3
        again = _run_checked(answers, writes, operands, qx, token_by_token)
        return StepsDone(again, answers.launches + writes.launches, plan_us)
    chain = kernels_of_step.chain("read", "gemm", "write")
    plan_us = (perf_counter_ns() - begin) / 1e3
    chain.run()
    return StepsDone({}, chain.launches, plan_us)


class _Kernels:
    """The three kernels of a step, as chains of some of them over a segment's steps."""

    def __init__(self, operands: StepOperands, geometry: Geometry, segment: Segment):
        first, end = geometry.token_range(segment)
        self._operands, self._geometry = operands, geometry
        self._steps, self._tokens = segment.steps, end - first
        self._pdl = supports_pdl(operands.bank.device)

    def chain(self, *names: str) -> StepChain:
        """The chain of "read", "gemm" or "write", in that order."""
        o = self._operands
        sizes = (self._geometry, self._steps, self._tokens)
        kind = ("forward", names, *sizes, o.bank.dtype, o.bank.device, o.snap is None, self._pdl)
        return bound_chain(kind, self._tensors(names), lambda: self._record(names))

    def _tensors(self, names: tuple[str, ...]) -> dict[str, Tensor]:
        """The operands of these kernels by the names of their plans."""
        o = self._operands
        tensors: dict[str, Tensor | None] = {}
        if "read" in names:
            tensors |= {"bank": o.bank, "v": o.v, "row_weights": o.row_weights}
            tensors |= {"residual": o.residual, "reading": o.reading}
        if "gemm" in names:
            tensors |= {"d_u": o.delta, "x": o.x, "d_dv": o.residual}
        if "write" in names:
            tensors |= {"bank": o.bank, "delta": o.delta, "updates": o.updates}
            tensors |= {"snap": o.snap, "bpre": o.bpre}
        return {name: tensor for name, tensor in tensors.items() if tensor is not None}

    def _record(self, names: tuple[str, ...]) -> StepChain:
        record = {"read": self._read, "gemm": self._gemm, "write": self._write}
        return StepChain([record[name]() for name in names], self._steps, order="ascending")

    def _read(self) -> Plan:
        o = self._operands
        return kernels.plan_fx_read(
            o.bank,
            o.v,
            o.row_weights,
            o.residual,
            o.reading,
            steps=self._steps,
            num_parallel=self._geometry.streams,
            chunk_size=self._geometry.chunk,
            num_writes=self._geometry.writes,
            num_tokens=self._tokens,
            pdl=self._pdl,
        )

    def _gemm(self) -> Plan:
        o, streams = self._operands, self._geometry.streams
        return kernels.plan_gx_gemm(
            o.delta, o.x, o.residual, steps=self._steps, num_parallel=streams, pdl=self._pdl
        )

    def _write(self) -> Plan:
        o = self._operands
        return kernels.plan_fx_write(
            o.bank,
            o.delta,
            o.updates,
            steps=self._steps,
            num_parallel=self._geometry.streams,
            chunk_size=self._geometry.chunk,
            num_writes=self._geometry.writes,
            snap=o.snap,
            bpre=o.bpre,
            pdl=self._pdl,
        )


def _run_checked(
    answers: StepChain,
    writes: StepChain,
    operands: StepOperands,
    qx: Tensor,
    token_by_token: Callable[[int], TokenStep],
) -> dict[int, TokenStep]:
    """Step by step on the CPU, each looked at before it is written."""
    again: dict[int, TokenStep] = {}
    by_step = (answers.steps, -1)
    readings = operands.reading.view(by_step).unbind(0)
    deltas = operands.delta.view(by_step).unbind(0)
    # Their products can overflow, or meet a 0, where a token's reading does neither.
    own = qx.view(by_step).sum(1).isfinite().tolist()
    for step in range(answers.steps):
        answers.run_step(step)
        # A residual that is not finite leaves a delta that is not: its own weight is beta.
        if own[step] and all_finite(readings[step], deltas[step]):
            writes.run_step(step)
            continue
        again[step] = tokens = token_by_token(step)
        deltas[step].copy_(tokens.delta.flatten())
        writes.run_step(step)  # for the snapshot; the rows are written over
        operands.bank.index_copy_(0, tokens.bank_rows, tokens.rows.to(operands.bank.dtype))
    return again
