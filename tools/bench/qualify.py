"""What gemm="auto" picks at the shapes of the qualification table, and whether that is right.

    python tools/bench/qualify.py [--json OUT.json]

A row: whether gx_gemm gives the bits of torch.baddbmm, aligned and one element off; microseconds a
step inside a CUDA graph of torch.baddbmm, of the chain's BLAS step, and of gx_gemm launched plainly
and programmatically (medians, in turn, every step on other rows); what is picked, and how much
slower than torch.baddbmm that is. Then the cost of asking for a verdict that is cached.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NamedTuple

import torch
from figures import Figure, of_samples, save
from step_kernels import time_in_turn

from sdm_runtime import BlasGemmStep, StepChain, kernels, qualify
from sdm_runtime.machine.backends import supports_pdl
from sdm_runtime.plan.plan import Plan
from sdm_runtime.qualify.operand_shapes import Sizes
from sdm_runtime.qualify.patterns import GemmInputs
from sdm_runtime.qualify.probe import differing_patterns, library_gemm, placed

TABLE = [
    Sizes(2, 16, 64),
    Sizes(2, 64, 128),
    Sizes(2, 64, 1024),
    Sizes(4, 64, 1024),
    Sizes(8, 64, 1024),
    Sizes(16, 64, 128),
    Sizes(2, 128, 1024),
    Sizes(8, 256, 1024),
]
ALIGNED, OFF = (0, 0, 0), (4, 4, 4)
ROW_BYTES = 256 << 20  # of all steps: more than the caches hold
ASKS = 2000


class Row(NamedTuple):
    """One shape: microseconds a step of each way, what is picked, and whether it has the bits."""

    sizes: Sizes
    us: dict[str, list[float]]
    picked: str  # one of the ways
    reason: str
    differs: tuple[str, ...]
    probe_us: float

    def median(self, way: str) -> float:
        return statistics.median(self.us[way])

    @property
    def over_library(self) -> float:
        """What is picked, in times of the library."""
        return self.median(self.picked) / self.median("library")


def step_count(sizes: Sizes) -> int:
    """So many that their rows do not stay in the caches, within reason."""
    elements = 2 * torch.Size(sizes.rows).numel() + torch.Size(sizes.square).numel()
    return max(8, min(512, ROW_BYTES // (4 * elements)))


def library_replay(sizes: Sizes, steps: int, operands: GemmInputs) -> Callable[[], None]:
    """torch.baddbmm for every step, captured."""

    def run() -> None:
        for ti in reversed(range(steps)):
            part = slice(ti * sizes.sequences, (ti + 1) * sizes.sequences)
            library_gemm(*(operand[part] for operand in operands))

    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def measure(sizes: Sizes, device: torch.device) -> dict[str, list[float]]:
    """Microseconds a step of each way."""
    steps = step_count(sizes)
    operands = placed(sizes, ALIGNED, device, steps)
    for tensor in operands:
        tensor.normal_(0, 0.01)
    common: dict[str, Any] = {"steps": steps, "num_parallel": sizes.sequences}
    plans: dict[str, Plan] = {
        "blas_step": BlasGemmStep(*operands, **common),
        "plain": kernels.plan_gx_gemm(*operands, **common),
    }
    if supports_pdl(device):
        plans["pdl"] = kernels.plan_gx_gemm(*operands, pdl=True, **common)
    graphs = {name: StepChain([plan], steps).graph() for name, plan in plans.items()}
    replays = {"library": library_replay(sizes, steps, operands)}
    replays |= {name: graph.replay for name, graph in graphs.items()}
    return time_in_turn(replays, steps)


def row_of(sizes: Sizes, device: torch.device) -> Row:
    """One row of the table."""
    decision = qualify.decide(*placed(sizes, ALIGNED, device), sizes.sequences)
    again = qualify.decide(*placed(sizes, ALIGNED, device), sizes.sequences)
    times = measure(sizes, device)
    picked = "blas_step"
    if again.matches:
        picked = "pdl" if "pdl" in times else "plain"
    differs = differing_patterns(sizes, [ALIGNED, OFF], device)
    return Row(sizes, times, picked, again.reason, differs, decision.probe_us)


def hit_cost_us(device: torch.device) -> list[float]:
    """Microseconds of a backward's questions whose answer is cached, in order of size."""
    operands = placed(TABLE[1], ALIGNED, device)
    times = []
    for _ in range(ASKS):
        begin = perf_counter_ns()
        qualify.decide_backward(*operands, TABLE[1].sequences)
        times.append((perf_counter_ns() - begin) / 1e3)
    return sorted(times)


def figures_of(row: Row) -> list[Figure]:
    """The time of each way and what the pick takes of the library's."""
    title = ", ".join(str(size) for size in row.sizes)
    said = {"picked": row.picked, "reason": row.reason, "differs": row.differs}
    ratio = Figure(f"{title}: picked, to the library", "x", row.over_library, details=said)
    return [*(of_samples(f"{title}: {way}", "us", us) for way, us in row.us.items()), ratio]


def print_row(row: Row) -> None:
    shape = f"{row.sizes.sequences:>2}, {row.sizes.chunk:>3}, {row.sizes.head_dim:>4}"
    bits = "DIFFER" if row.differs else "equal"
    times = " ".join(f"{way} {row.median(way):6.2f}" for way in row.us)
    times += f" probe {row.probe_us:6.2f}"
    auto = "blas" if row.picked == "blas_step" else "gx_gemm"
    print(f"{shape} | bits {bits} | {times} | auto {auto} x{row.over_library:.3f} | {row.reason}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    device = torch.device("cuda", torch.cuda.current_device())
    figures: list[Figure] = []
    for sizes in TABLE:
        row = row_of(sizes, device)
        figures += figures_of(row)
        print_row(row)
        torch.cuda.empty_cache()
    hit = hit_cost_us(device)
    high = hit[len(hit) * 99 // 100]
    median = statistics.median(hit)
    print(f"cached verdict: {median:.1f} us (99%: {high:.1f}); {qualify.stats()}")
    if args.json:
        cached = Figure("cached verdict", "us", median, high - hit[0], {"p99_us": high})
        save(args.json, [*figures, cached])


if __name__ == "__main__":
    main()
