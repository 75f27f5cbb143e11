"""What a backward spends its time on at the target shapes: its kernels, in and out of the chain.

    python tools/bench/backward_breakdown.py [--shapes NAME...] [--slots PICKS...] [--forward]
                                             [--json OUT.json]

One profiled call a shape, after two that are not; milliseconds of device time by kernel, the
chain's four first. "before" and "after" are the device's time from the first kernel to the chain's
first, and from the chain's last to the last; the profiler slows the host down, so where the host is
behind they say little. No overlap is taken into account: the sum may exceed the span.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from backward import forward, make_inputs
from figures import Figure, save
from slot_picks import add_option
from step_operands import SHAPES, Sizes
from torch.autograd import DeviceType

CHAIN = ("gx_gwr", "gx_gemm", "gx_pa2", "gx_gds")


class Kernel(NamedTuple):
    """One kernel, copy or fill on the device; microseconds."""

    name: str
    begin: float
    end: float

    @property
    def in_chain(self) -> bool:
        """Whether it is one of the four step kernels."""
        return self.name.startswith(CHAIN)


def profiled(work: Callable[[], object]) -> list[Kernel]:
    """What ``work`` ran on the device, in order."""
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        work()
        torch.cuda.synchronize()
    found = [
        Kernel(event.name, event.time_range.start, event.time_range.end)
        for event in profile.events()
        if event.device_type == DeviceType.CUDA
    ]
    return sorted(found, key=lambda kernel: kernel.begin)


def spans(found: list[Kernel]) -> dict[str, float]:
    """Milliseconds in all, and where there is a chain before, in and after it."""
    times = {"all": (found[-1].end - found[0].begin) / 1e3}
    chain = [kernel for kernel in found if kernel.in_chain]
    if chain:
        times["before"] = (chain[0].begin - found[0].begin) / 1e3
        times["chain"] = (chain[-1].end - chain[0].begin) / 1e3
        times["after"] = (found[-1].end - chain[-1].end) / 1e3
    return times


def by_name(found: list[Kernel]) -> dict[str, float]:
    """Milliseconds of each kernel, the chain's first, those of 0.002 and more."""
    times: dict[str, float] = {}
    for kernel in found:
        times[kernel.name] = times.get(kernel.name, 0) + (kernel.end - kernel.begin) / 1e3
    ordered = sorted(times, key=lambda name: (not name.startswith(CHAIN), -times[name]))
    return {name: times[name] for name in ordered if times[name] >= 0.002}


def print_table(title: str, found: list[Kernel]) -> None:
    """Spans, then the names by their time."""
    whole, *parts = spans(found).items()
    print(f"{title}: {len(found)} kernels in {whole[1]:.2f} ms")
    if parts:
        print("  " + "  ".join(f"{name} {ms:.3f}" for name, ms in parts))
    counts = Counter(kernel.name for kernel in found)
    for name, ms in by_name(found).items():
        print(f"  {ms:8.3f} ms {counts[name]:6d}  {name[:110]}")


def figures_of(title: str, found: list[Kernel]) -> list[Figure]:
    """The table's figures; one profiled call has no spread."""
    return [
        Figure(f"{title}: {name}", "ms", ms)
        for name, ms in [*spans(found).items(), *by_name(found).items()]
    ]


def breakdown(sizes: Sizes, picks: str, with_forward: bool) -> list[Figure]:
    """Print one shape's tables; their figures."""
    inputs = make_inputs(sizes, picks)
    leaves = [tensor for tensor in inputs.values() if tensor.requires_grad]

    def backward(readings: torch.Tensor) -> None:
        torch.autograd.grad(readings, leaves, inputs["grad"])

    for _ in range(2):
        backward(forward(sizes, inputs))
    readings = forward(sizes, inputs)
    tables = {"backward": profiled(lambda: backward(readings))}
    if with_forward:
        with torch.no_grad():
            tables["forward"] = profiled(lambda: forward(sizes, inputs))
    figures: list[Figure] = []
    for name, found in tables.items():
        title = f"{sizes.name} {picks} {name}"
        print_table(title, found)
        figures += figures_of(title, found)
    return figures


def main() -> None:
    """A table a shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="*", default=[s.name for s in SHAPES])
    add_option(parser)
    parser.add_argument("--forward", action="store_true", help="the forward as well")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures: list[Figure] = []
    for sizes in SHAPES:
        for picks in options.slots if sizes.name in options.shapes else ():
            figures += breakdown(sizes, picks, options.forward)
            torch.cuda.empty_cache()
    if options.json:
        save(options.json, figures)


if __name__ == "__main__":
    main()
