"""What gemm="auto" picks at the shapes of the qualification table, and whether that is right.

    python tools/bench/qualify.py [--json OUT.json]

A row: whether gx_gemm gives the bits of torch.baddbmm, aligned and one element off; microseconds a
step inside a CUDA graph of torch.baddbmm, of the chain's BLAS step, and of gx_gemm launched plainly
and programmatically (medians, in turn, every step on other rows); what is picked, and how much
slower than torch.baddbmm that is. Then the cost of asking for a verdict that is cached.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns

import torch
from step_kernels import time_in_turn

from sdm_runtime import BlasGemmStep, StepChain, kernels, qualify
from sdm_runtime.machine.backends import supports_pdl
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


def step_count(sizes: Sizes) -> int:
    """So many that their rows do not stay in the caches, within reason."""
    elements = 2 * torch.Size(sizes.rows).numel() + torch.Size(sizes.square).numel()
    return max(8, min(512, ROW_BYTES // (4 * elements)))


def library_replay(sizes: Sizes, steps: int, operands: GemmInputs) -> Callable[[], None]:
    """torch.baddbmm for every step, captured."""

    def run() -> None:
        for ti in reversed(range(steps)):
            part = slice(ti * sizes.streams, (ti + 1) * sizes.streams)
            library_gemm(*(operand[part] for operand in operands))

    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def measure(sizes: Sizes, device: torch.device) -> dict[str, float]:
    """Microseconds a step of each way."""
    steps = step_count(sizes)
    operands = placed(sizes, ALIGNED, device, steps)
    for tensor in operands:
        tensor.normal_(0, 0.01)
    common = {"steps": steps, "num_parallel": sizes.streams}
    plans = {
        "blas_step_us": BlasGemmStep(*operands, **common),
        "plain_us": kernels.plan_gx_gemm(*operands, **common),
    }
    if supports_pdl(device):
        plans["pdl_us"] = kernels.plan_gx_gemm(*operands, pdl=True, **common)
    graphs = {name: StepChain([plan], steps).graph() for name, plan in plans.items()}
    replays = {"library_us": library_replay(sizes, steps, operands)}
    replays |= {name: graph.replay for name, graph in graphs.items()}
    return {name: statistics.median(us) for name, us in time_in_turn(replays, steps).items()}


def row_of(sizes: Sizes, device: torch.device) -> dict[str, object]:
    """One row of the table."""
    decision = qualify.decide(*placed(sizes, ALIGNED, device), sizes.streams)
    again = qualify.decide(*placed(sizes, ALIGNED, device), sizes.streams)
    times = measure(sizes, device)
    picked = "blas_step_us"
    if again.matches:
        picked = "pdl_us" if "pdl_us" in times else "plain_us"
    return {
        **sizes._asdict(),
        "differs_aligned": differing_patterns(sizes, [ALIGNED], device),
        "differs_offset": differing_patterns(sizes, [OFF], device),
        **times,
        "auto": "gx_gemm" if again.matches else "blas",
        "reason": again.reason,
        "probe_us": decision.probe_us,
        "picked_over_library": times[picked] / times["library_us"],
    }


def hit_cost_us(device: torch.device) -> dict[str, float]:
    """Microseconds of a backward's question, when its answer is cached."""
    operands = placed(TABLE[1], ALIGNED, device)
    times = []
    for _ in range(ASKS):
        begin = perf_counter_ns()
        qualify.decide_backward(*operands, TABLE[1].streams)
        times.append((perf_counter_ns() - begin) / 1e3)
    times.sort()
    return {"median": statistics.median(times), "p99": times[len(times) * 99 // 100]}


def print_row(row: dict[str, object]) -> None:
    shape = f"{row['streams']:>2}, {row['chunk']:>3}, {row['head_dim']:>4}"
    bits = "equal" if not (row["differs_aligned"] or row["differs_offset"]) else "DIFFER"
    times = " ".join(f"{name[:-3]} {row[name]:6.2f}" for name in row if name.endswith("_us"))
    print(f"{shape} | bits {bits} | {times} | auto {row['auto']} x{row['picked_over_library']:.3f} | {row['reason']}")  # fmt: skip # noqa: E501


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    device = torch.device("cuda", torch.cuda.current_device())
    rows = []
    for sizes in TABLE:
        rows.append(row_of(sizes, device))
        print_row(rows[-1])
        torch.cuda.empty_cache()
    hit = hit_cost_us(device)
    print(f"cached verdict: {hit['median']:.1f} us (99%: {hit['p99']:.1f}); {qualify.stats()}")
    if args.json:
        machine = {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
        }
        report = {"machine": machine, "rows": rows, "hit_us": hit, "stats": qualify.stats()}
        args.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
