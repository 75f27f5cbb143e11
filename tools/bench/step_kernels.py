"""Times the step kernels and their chains at the target shapes, inside CUDA graphs.

    python tools/bench/step_kernels.py [--shapes NAME...] [--slots PICKS...] [--json OUT.json]

Every figure is the median over replays of one graph that holds a launch for each step, in
microseconds a step: steps touch other rows, so rows are as cold as in a backward. The floor of a
kernel counts each row once, at the rates that random 2-KB rows reach on an H200 (2.2 TB/s gathered,
3.3 TB/s read and written); the forward's is that of its two kernels of rows. `chain` is the
backward's, `forward` the forward's, `forward drop` the same without snapshots. The matrix product
is timed beside the library's, in turn. Slots: slot_picks.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from figures import Figure, of_samples, save
from slot_picks import add_option
from step_operands import SHAPES, Sizes, make_operands

from sdm_runtime import kernels
from sdm_runtime.plan.chain import StepChain
from sdm_runtime.plan.plan import Plan

GATHER_BYTES_PER_US, MIXED_BYTES_PER_US = 2.2e6, 3.3e6
REPLAYS = 9
NAMES = ("gx_gwr", "gx_gemm", "gx_pa2", "gx_gds")
FORWARD_NAMES = ("fx_read", "fx_gemm", "fx_write")


def named(t: dict[str, torch.Tensor], *names: str) -> dict[str, Any]:
    """Operands as keyword arguments."""
    return {name: t[name] for name in names}


def make_plans(sizes: Sizes, t: dict[str, torch.Tensor], pdl: bool) -> dict[str, Plan]:
    """A plan of each kernel over all steps."""
    common: dict[str, Any] = {"steps": sizes.steps, "num_parallel": sizes.sequences, "pdl": pdl}
    chunk: dict[str, Any] = {"chunk_size": sizes.chunk}
    by_chunk = (sizes.chunks, sizes.chunk, sizes.hd)
    gwr = named(t, "grad", "delta", "pd", "slots", "d_dv", "dpd")
    pa2 = named(t, "grad", "bank", "snap", "d_u", "beta", "kpay", "rec", "out_eff", "out_g", "bpre")
    gds = named(t, "grad", "bank", "gy", "qrec", "dq")
    tokens = sizes.steps * sizes.chunk
    return {
        "gx_gwr": kernels.plan_gx_gwr(**gwr, num_tokens=tokens, **chunk, **common),
        "gx_gemm": kernels.plan_gx_gemm(
            t["d_u"].view(by_chunk), t["x"], t["d_dv"].view(by_chunk), **common
        ),
        "gx_pa2": kernels.plan_gx_pa2(**pa2, num_writes=sizes.entries, **chunk, **common),
        "gx_gds": kernels.plan_gx_gds(**gds, num_reads=sizes.entries, **chunk, **common),
    }  # fmt: skip


def make_forward_plans(
    sizes: Sizes, t: dict[str, torch.Tensor], pdl: bool, keep: bool = True
) -> dict[str, Plan]:
    """A plan of each kernel of the forward over all steps; fx_gemm is gx_gemm on its operands."""
    common: dict[str, Any] = {"steps": sizes.steps, "num_parallel": sizes.sequences, "pdl": pdl}
    chunk: dict[str, Any] = {"chunk_size": sizes.chunk, "num_writes": sizes.entries}
    by_chunk = (sizes.chunks, sizes.chunk, sizes.hd)
    answers = named(t, "bank", "v", "row_weights", "residual", "reading")
    kept = named(t, "snap", "bpre") if keep else {}
    tokens = sizes.steps * sizes.chunk
    return {
        "fx_read": kernels.plan_fx_read(**answers, num_tokens=tokens, **chunk, **common),
        "fx_gemm": kernels.plan_gx_gemm(
            t["delta"].view(by_chunk), t["x"], t["residual"].view(by_chunk), **common
        ),
        "fx_write": kernels.plan_fx_write(
            t["bank"], t["delta"], t["updates"], **kept, **chunk, **common
        ),
    }


def make_chains(sizes: Sizes, operands: dict[str, torch.Tensor]) -> dict[str, StepChain]:
    """Every kernel alone and both chains, with and without programmatic launches."""
    chains: dict[str, StepChain] = {}
    for pdl, suffix in ((False, ""), (True, " pdl")):
        plans = make_plans(sizes, operands, pdl)
        forward = make_forward_plans(sizes, operands, pdl)
        dropping = make_forward_plans(sizes, operands, pdl, keep=False)
        for name, plan in (plans | forward).items():
            chains[name + suffix] = StepChain([plan], sizes.steps)
        chains["chain" + suffix] = StepChain([plans[name] for name in NAMES], sizes.steps)
        for what, made in (("forward", forward), ("forward drop", dropping)):
            ordered = [made[name] for name in FORWARD_NAMES]
            chains[what + suffix] = StepChain(ordered, sizes.steps, order="ascending")
    return chains


def library_graph(sizes: Sizes, t: dict[str, torch.Tensor]) -> torch.cuda.CUDAGraph:
    """torch.baddbmm for every step."""
    by_step = (sizes.steps, sizes.sequences, sizes.chunk, sizes.hd)
    d_u, d_dv = t["d_u"].view(by_step), t["d_dv"].view(by_step)
    x = t["x"].view(sizes.steps, sizes.sequences, sizes.chunk, sizes.chunk)

    def steps() -> None:
        for ti in reversed(range(sizes.steps)):
            torch.baddbmm(d_u[ti], x[ti].transpose(1, 2), d_dv[ti], out=d_u[ti])

    steps()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        steps()
    return graph


def time_in_turn(replays: dict[str, Callable[[], None]], steps: int) -> dict[str, list[float]]:
    """Microseconds a step of each replay, alternating between them."""
    times: dict[str, list[float]] = {name: [] for name in replays}
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for number in range(REPLAYS + 2):
        for name, replay in replays.items():
            start.record()
            replay()
            stop.record()
            stop.synchronize()
            if number >= 2:
                times[name].append(start.elapsed_time(stop) * 1000 / steps)
    return times


def floor_us(sizes: Sizes, name: str) -> float | None:
    """What the bytes of a kernel's rows take."""
    rows = sizes.row_bytes
    floors = {
        "gx_gwr": rows / GATHER_BYTES_PER_US,
        "gx_pa2": 4 * rows / MIXED_BYTES_PER_US,
        "gx_gds": 3 * rows / MIXED_BYTES_PER_US,
        "fx_read": 2 * rows / GATHER_BYTES_PER_US,
        "fx_write": 3 * rows / MIXED_BYTES_PER_US,
    }
    writes = 2 if "drop" in name else 3
    floors["forward"] = floors["fx_read"] + writes * rows / MIXED_BYTES_PER_US
    return floors.get(name.split()[0])


def time_shape(sizes: Sizes, picks: str) -> list[Figure]:
    """Every figure of one shape; in its details the floor and the geometry."""
    torch.manual_seed(0)
    operands = make_operands(sizes, picks)
    chains = make_chains(sizes, operands)
    graphs = {name: chain.graph() for name, chain in chains.items()}
    replays: dict[str, Callable[[], None]] = {n: g.replay for n, g in graphs.items()}
    library = library_graph(sizes, operands)
    replays["baddbmm"] = library.replay
    figures = []
    for name, times in time_in_turn(replays, sizes.steps).items():
        plans = chains[name].plans if name in chains else []
        details: dict[str, Any] = {"floor_us": floor_us(sizes, name)}
        details |= {"geometry": plans[0].geometry} if len(plans) == 1 else {}
        title = f"{sizes.name:<9} {picks:<8} {name}"
        figures.append(of_samples(" ".join(title.split()), "us", times, **details))
        print_row(title, figures[-1])
    return figures


def print_row(title: str, figure: Figure) -> None:
    floor = figure.details["floor_us"]
    text = f"floor {floor:7.2f}" if isinstance(floor, float) else " " * 13
    print(f"{title:<35} {figure.figure:8.2f} +- {figure.spread:5.2f} us  {text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="*", default=[s.name for s in SHAPES])
    add_option(parser)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    figures: list[Figure] = []
    for sizes in SHAPES:
        for picks in args.slots if sizes.name in args.shapes else ():
            figures += time_shape(sizes, picks)
            torch.cuda.empty_cache()
    if args.json:
        save(args.json, figures)


if __name__ == "__main__":
    main()
