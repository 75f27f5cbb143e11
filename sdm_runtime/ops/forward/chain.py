"""The forward's step chain: fx_read -> gx_gemm -> fx_write, the steps of a segment ascending."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from sdm_runtime.errors import CudaError
from sdm_runtime.ops.call.geometry import Geometry, Segment
from sdm_runtime.ops.forward.progress import StepsWritten
from sdm_runtime.ops.forward.readback import reads_are_free
from sdm_runtime.ops.forward.token_step import TokenStep, all_finite
from sdm_runtime.ops.routes.step_chain import GEMM, GemmChoice, PassChain, StepSizes, step_chain
from sdm_runtime.plan.chain import StepChain

GEMM_CHOICE = GemmChoice("gx_gemm", "the forward has no other")


class StepOperands(NamedTuple):
    """Operands of a segment of G chunks, n = C*W writes each; names as in sdm_runtime.kernels."""

    bank: Tensor  # [rows, hd]
    v: Tensor  # [G, C, hd] of the bank's dtype
    row_weights: Tensor  # int32 [G*C, W+R, 2]
    updates: Tensor  # int32 [G, n, 4]
    x: Tensor  # f32 [G, C, C]: beta_j X[i, j] at [j, i]
    residual: Tensor  # f32 [G, C, hd]: v minus the answer of the bank before the step
    reading: Tensor  # f32 [G, C, hd], of the bank before the step
    delta: Tensor  # f32 [G, C, hd], zeros before the steps
    snap: Tensor | None  # [G*snapshot_rows, hd] of the bank's dtype
    bpre: Tensor | None  # int32 [G, ceil(n/32) + 1]

    def tensors(self, kernels: tuple[str, ...]) -> dict[str, Tensor]:
        """The operands of these kernels, by their names in the tables."""
        tensors: dict[str, Tensor | None] = {"bank": self.bank}
        if "fx_read" in kernels:
            tensors |= {"v": self.v, "row_weights": self.row_weights}
            tensors |= {"residual": self.residual, "reading": self.reading}
        if GEMM in kernels:
            tensors |= {"d_u": self.delta, "x": self.x, "d_dv": self.residual}
        if "fx_write" in kernels:
            tensors |= {"delta": self.delta, "updates": self.updates}
            tensors |= {"snap": self.snap, "bpre": self.bpre}
        return {name: tensor for name, tensor in tensors.items() if tensor is not None}


class StepsDone(NamedTuple):
    """What a segment's steps took."""

    again: dict[int, TokenStep]  # the steps that were run token by token
    chains: tuple[PassChain, ...]


def run_steps(
    operands: StepOperands,
    qk: Tensor,
    geometry: Geometry,
    segment: Segment,
    token_by_token: Callable[[int], TokenStep],
    written: StepsWritten,
) -> StepsDone:
    """Advance the bank over a segment's steps; residual, reading, delta and snap are written.

    token_by_token(step of the segment) runs a step that is not finite again, on the bank before it;
    qk [G, C, C] will make, with delta, the readings of the chunks' own writes. What has been
    written is noted as it is.
    """
    if not reads_are_free(operands.bank):
        kernels = ("fx_read", GEMM, "fx_write")
        chain = _chain(kernels, operands, geometry, segment)
        written.together = segment.steps
        try:
            chain.run(written.marks)
        except CudaError as error:
            written.issued(error.issued, len(kernels))
            raise
        return StepsDone({}, (chain,))
    answers = _chain(("fx_read", GEMM), operands, geometry, segment)
    writes = _chain(("fx_write",), operands, geometry, segment)
    again = _run_checked(answers.chain, writes.chain, operands, qk, token_by_token, written.marks)
    return StepsDone(again, (answers, writes))


def write_chain(
    bank: Tensor, delta: Tensor, updates: Tensor, geometry: Geometry, segment: Segment
) -> PassChain:
    """A segment's writes alone, without snapshots; operands as StepOperands has them."""
    operands = {"bank": bank, "delta": delta, "updates": updates}
    return _bound(("fx_write",), operands, geometry, segment, keeps=False)


def _chain(
    kernels: tuple[str, ...], operands: StepOperands, geometry: Geometry, segment: Segment
) -> PassChain:
    """The chain of these kernels over a segment's steps."""
    tensors, keeps = operands.tensors(kernels), operands.snap is not None
    return _bound(kernels, tensors, geometry, segment, keeps=keeps)


def _bound(
    kernels: tuple[str, ...],
    tensors: dict[str, Tensor],
    geometry: Geometry,
    segment: Segment,
    *,
    keeps: bool,
) -> PassChain:
    first, end = geometry.token_range(segment)
    return step_chain(
        kernels,
        tensors,
        StepSizes.of(geometry, end - first, snapshots=keeps),
        steps=segment.steps,
        order="ascending",
        kind=(geometry.bank_rows, geometry.head_dim, tensors["bank"].dtype),
        gemm=GEMM_CHOICE,
    )


def _run_checked(
    answers: StepChain,
    writes: StepChain,
    operands: StepOperands,
    qk: Tensor,
    token_by_token: Callable[[int], TokenStep],
    written: list[None],
) -> dict[int, TokenStep]:
    """Step by step on the CPU, each looked at before it is written."""
    again: dict[int, TokenStep] = {}
    by_step = (answers.steps, -1)
    readings = operands.reading.view(by_step).unbind(0)
    deltas = operands.delta.view(by_step).unbind(0)
    # Products of weights can overflow, or meet a delta of 0, where a token's reading does neither.
    own = qk.view(by_step).sum(1).isfinite().tolist()
    for step in range(answers.steps):
        answers.run_step(step)
        # A residual that is not finite leaves a delta that is not: its own weight is beta.
        if own[step] and all_finite(readings[step], deltas[step]):
            writes.run_step(step, ran=written)
            continue
        again[step] = tokens = token_by_token(step)
        deltas[step].copy_(tokens.delta.flatten())
        writes.run_step(step, ran=written)  # for the snapshot; the rows are written over
        operands.bank.index_copy_(0, tokens.bank_rows, tokens.rows.to(operands.bank.dtype))
    return again
