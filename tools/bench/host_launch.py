"""Host time per launch: a chain's run against a bare loop of the same driver launches.

    python tools/bench/host_launch.py [--rounds N] [--json OUT.json]

The chain is small, so that the device keeps up and the host is what is timed; each round runs every
way once, in turn, from an idle device. The bare loop (bare_launch.cpp) makes the same launches with
the same attributes and patches nothing. "windows" are launches of several steps at a time; see
StepChain.run. Also: one replay of the captured and of the explicit graph
(host time of the replay and the device's time per launch), and what building the chain takes.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from figures import Figure, of_samples, save
from step_kernels import NAMES, make_plans
from step_operands import Sizes, make_operands

import sdm_runtime
from sdm_runtime.plan.chain import StepChain
from sdm_runtime.plan.plan import Plan

TINY = Sizes("tiny", 1, 16, 4, 64, 256, 200)  # 800 launches: fewer than the driver queues
COMPARED = ("chain.run", "chain.run, windows")
IMAGES = Path(sdm_runtime.__file__).parent / "device"


class Row(NamedTuple):
    """One way of launching: microseconds a launch, or of building the whole chain."""

    what: str
    pdl: bool
    us: list[float]
    to_bare: float | None  # times the bare loop's, where that is the question

    @property
    def title(self) -> str:
        return f"{self.what} pdl" if self.pdl else self.what


def cuda_include() -> str:
    """The folder of cuda.h, as nvcc names it."""
    command = ["nvcc", "--dryrun", "-x", "cu", "-E", os.devnull]
    said = subprocess.run(command, check=True, text=True, capture_output=True).stderr
    match = re.search(r'INCLUDES="-I([^"]*?)"', said)
    if not match:
        raise SystemExit("host_launch: nvcc does not say where cuda.h is")
    return match[1].strip()


def build_bare_loop(folder: Path) -> ctypes.CDLL:
    source = Path(__file__).with_name("bare_launch.cpp")
    target = folder / "libbare_launch.so"
    command = ["g++", "-O2", "-std=c++20", "-shared", "-fPIC", f"-I{cuda_include()}"]
    subprocess.run([*command, str(source), "-o", str(target), "-ldl"], check=True)
    library = ctypes.CDLL(str(target))
    library.bare_run.restype = ctypes.c_double
    return library


def bound_params(plan: Plan) -> bytes:
    """The plan's parameter block with the addresses of its operands in it."""
    params = bytearray(plan._core.params())
    offsets = {field.name: field.offset for field in plan.fields}
    for operand in plan.operands:
        address = plan.tensors[operand.name].data_ptr() + operand.offset
        struct.pack_into("<Q", params, offsets[operand.field], address)
    return bytes(params)


def add_bare_launches(library: ctypes.CDLL, chain: StepChain, stream: int) -> None:
    library.bare_clear()
    for plan in chain.plans:
        geometry = plan.geometry
        image = (IMAGES / f"{geometry['entry']}.fatbin").read_bytes()
        blocks = (ctypes.c_uint * 6)(*geometry["grid"], *geometry["block"])
        params = bound_params(plan)
        error = library.bare_add(
            image,
            geometry["entry"].encode(),
            blocks,
            ctypes.c_uint(geometry["shared_bytes"]),
            int(geometry["programmatic"]),
            params,
            len(params),
            ctypes.c_void_p(stream),
        )
        if error:
            raise SystemExit(f"host_launch: the bare loop cannot load {geometry['entry']}: {error}")


def host_us(call: Callable[[], object]) -> float:
    """Host microseconds of a call, from an idle device."""
    torch.cuda.synchronize()
    begin = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - begin) / 1e3


def device_us(call: Callable[[], object]) -> float:
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) * 1000


def time_ways(library: ctypes.CDLL, pdl: bool, rounds: int) -> list[Row]:
    operands = make_operands(TINY)
    plans = make_plans(TINY, operands, pdl)
    chain = StepChain([plans[name] for name in NAMES], TINY.steps)
    stream = torch.cuda.current_stream()
    add_bare_launches(library, chain, stream.cuda_stream)
    explicit = chain.graph()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        chain.run()

    def bare() -> float:
        torch.cuda.synchronize()
        taken = float(library.bare_run(TINY.steps))
        if taken < 0:
            raise SystemExit(f"host_launch: the bare loop failed with error {-taken:.0f}")
        return taken

    ways: dict[str, Callable[[], float]] = {
        "bare loop": bare,
        "chain.run": lambda: host_us(lambda: chain.run(windowed=False)),
        "chain.run, windows": lambda: host_us(lambda: chain.run(windowed=True)),
        "windows, device": lambda: device_us(lambda: chain.run(windowed=True)),
        "captured graph, host": lambda: host_us(captured.replay),
        "explicit graph, host": lambda: host_us(explicit.replay),
        "captured graph, device": lambda: device_us(captured.replay),
        "explicit graph, device": lambda: device_us(explicit.replay),
        "building the chain": lambda: host_us(lambda: build(operands, pdl)),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 2):
        for name, way in ways.items():
            taken = way()
            if number >= 2:
                times[name].append(taken)
    per = {name: 1 if name.startswith("building") else chain.launches for name in ways}
    base = statistics.median(times["bare loop"]) / chain.launches
    rows = []
    for name, list_us in times.items():
        each = [us / per[name] for us in list_us]
        to_bare = statistics.median(each) / base if name in COMPARED else None
        rows.append(Row(name, pdl, each, to_bare))
    return rows


def figures_of(row: Row) -> list[Figure]:
    """Its time and, where there is one, its ratio to the bare loop's."""
    figures = [of_samples(row.title, "us", row.us)]
    if row.to_bare is not None:
        figures.append(Figure(f"{row.title}, to the bare loop", "x", row.to_bare))
    return figures


def build(operands: dict[str, torch.Tensor], pdl: bool) -> StepChain:
    plans = make_plans(TINY, operands, pdl)
    return StepChain([plans[name] for name in NAMES], TINY.steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        library = build_bare_loop(Path(folder))
        for pdl in (False, True):
            rows += time_ways(library, pdl, args.rounds)
    for row in rows:
        ratio = f"  {row.to_bare:.3f} x the bare loop" if row.to_bare else ""
        unit = "us" if row.what.startswith("building") else "us a launch"
        early = "pdl" if row.pdl else "   "
        us, spread = statistics.median(row.us), max(row.us) - min(row.us)
        print(f"{row.what:<24} {early} {us:8.3f} +- {spread:6.3f} {unit}{ratio}")
    if args.json:
        save(args.json, [figure for row in rows for figure in figures_of(row)])


if __name__ == "__main__":
    main()
