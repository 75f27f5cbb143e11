"""A chain of step kernels, as both passes have theirs: chosen, recorded or bound, run, reported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import perf_counter_ns
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from sdm_runtime.dispatch import Dispatch, record
from sdm_runtime.kernels.steps import plan_step
from sdm_runtime.machine.backends import supports_pdl
from sdm_runtime.ops.call.call import Call
from sdm_runtime.ops.call.geometry import Geometry
from sdm_runtime.ops.routes.bound_chains import bound_chain
from sdm_runtime.plan.blas_step import BlasGemmStep
from sdm_runtime.plan.chain import StepChain
from sdm_runtime.plan.plan import Plan
from sdm_runtime.plan.template import ChainLength
from sdm_runtime.tensor.arena import Arena

GEMM = "gemm"  # in a chain's kernels: the product that was chosen


class GemmChoice(NamedTuple):
    """Which matrix product a chain runs, and why."""

    name: str  # "gx_gemm" or "blas"
    reason: str
    probe_us: float = 0.0


class StepSizes(NamedTuple):
    """The sizes that callers of step kernels give; each kernel takes those of its table."""

    num_parallel: int
    chunk_size: int
    num_writes: int
    num_reads: int
    snap_chunk_rows: int | None  # None: no snapshots
    num_tokens: int  # the last: chains of a kind differ in it

    @classmethod
    def of(cls, geometry: Geometry, tokens: int, *, snapshots: bool) -> StepSizes:
        """A call's, for a chain over ``tokens`` tokens of each sequence."""
        return cls(
            num_parallel=geometry.sequences,
            chunk_size=geometry.chunk,
            num_writes=geometry.writes,
            num_reads=geometry.reads,
            snap_chunk_rows=geometry.snapshot_rows if snapshots else None,
            num_tokens=tokens,
        )


class PassChain(NamedTuple):
    """A chain that is ready to run, and what it is."""

    chain: StepChain
    gemm: GemmChoice
    plan_us: float  # of choosing the product, its probe left out, and of recording or binding

    def run(self, ran: list[None] | None = None) -> None:
        """Run every step; `ran` as in :meth:`StepChain.run`."""
        self.chain.run(ran=ran)


def step_chain(
    kernels: tuple[str, ...],
    operands: dict[str, Tensor],
    sizes: StepSizes,
    *,
    steps: int,
    order: Literal["ascending", "descending"],
    kind: tuple[object, ...],
    gemm: GemmChoice,
    arenas: Sequence[Arena] = (),
    snap_format: str | None = None,
    begin: int | None = None,
) -> PassChain:
    """The chain of these kernels over all steps.

    Args:
        kernels: A step's, in order: names of step kernels, or GEMM.
        operands: Theirs, by the names of their tables. The chain keeps the dict, which must stay
            as it is.
        sizes: Of every kernel.
        steps: Steps to run: all those that the operands hold.
        order: Which step comes first.
        kind: What else the plans depend on, hashable, but for the number of tokens: sizes of a row
            and the bank, dtypes, and what of the operands is missing.
        gemm: What GEMM stands for.
        arenas: With more operands.
        snap_format: How gx_pa2's snapshots are stored.
        begin: When the work on it began, by ``perf_counter_ns``; None: now.
    """
    begin = perf_counter_ns() if begin is None else begin
    device = next(iter(operands.values())).device
    pdl = supports_pdl(device)

    def record_plans() -> StepChain:
        given: dict[str, Any] = {**sizes._asdict(), "steps": steps, "pdl": pdl}
        given |= {"snap_format": snap_format, **operands}
        for arena in arenas:
            given |= arena.operands()
        return StepChain([_plan(k, gemm, given) for k in kernels], steps, order=order)

    length = ChainLength(steps, sizes.num_tokens)
    whole_kind = (kernels, sizes[:-1], order, kind, gemm.name, snap_format, device, pdl)
    chain = bound_chain(whole_kind, operands, record_plans, arenas, length)
    return PassChain(chain, gemm, (perf_counter_ns() - begin) / 1e3 - gemm.probe_us)


def report(
    op: str, call: Call, gemm: GemmChoice, device: torch.device, chains: Iterable[PassChain]
) -> None:
    """Record what a pass has run as the latest call's dispatch."""
    ran = list(chains)
    record(
        Dispatch(
            op=op,
            route="chain",
            backend="cuda" if device.type == "cuda" else "host",
            gemm=gemm.name,
            gemm_reason=gemm.reason,
            gemm_probe_us=gemm.probe_us,
            pdl=supports_pdl(device),
            geometry=call.describe(),
            launches=sum(each.chain.launches for each in ran),
            plan_us=sum(each.plan_us for each in ran),
        )
    )


def _plan(kernel: str, gemm: GemmChoice, given: dict[str, Any]) -> Plan:
    if kernel != GEMM:
        return plan_step(kernel, given)
    if gemm.name == "gx_gemm":
        return plan_step("gx_gemm", given)
    steps, num_parallel = given["steps"], given["num_parallel"]
    product = given["d_u"], given["x"], given["d_dv"]
    return BlasGemmStep(*product, steps=steps, num_parallel=num_parallel)
