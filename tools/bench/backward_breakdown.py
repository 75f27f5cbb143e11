"""What a backward spends its time on at the target shapes: its kernels, in and out of the chain.

    python tools/bench/backward_breakdown.py [--shapes NAME...] [--slots PICKS...] [--forward]

One profiled call a shape, after two that are not; milliseconds of device time by kernel, the
chain's four first. "before" and "after" are the device's time from the first kernel to the chain's
first, and from the chain's last to the last; the profiler slows the host down, so where the host is
behind they say little. No overlap is taken into account: the sum may exceed the span.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import torch
from backward import forward, make_inputs
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


def print_table(title: str, found: list[Kernel]) -> None:
    """Spans, then the names by their time."""
    total = (found[-1].end - found[0].begin) / 1e3
    print(f"{title}: {len(found)} kernels in {total:.2f} ms")
    chain = [kernel for kernel in found if kernel.in_chain]
    if chain:
        before = (chain[0].begin - found[0].begin) / 1e3
        during = (chain[-1].end - chain[0].begin) / 1e3
        after = (found[-1].end - chain[-1].end) / 1e3
        print(f"  before {before:.3f}  chain {during:.3f}  after {after:.3f}")
    times, counts = Counter[str](), Counter[str]()
    for kernel in found:
        times[kernel.name] += (kernel.end - kernel.begin) / 1e3
        counts[kernel.name] += 1
    chain_first = sorted(times, key=lambda name: (not name.startswith(CHAIN), -times[name]))
    for name in chain_first:
        if times[name] >= 0.002:
            print(f"  {times[name]:8.3f} ms {counts[name]:6d}  {name[:110]}")


def breakdown(sizes: Sizes, picks: str, with_forward: bool) -> None:
    """Print one shape's tables."""
    inputs = make_inputs(sizes, picks)
    leaves = [tensor for tensor in inputs.values() if tensor.requires_grad]

    def backward(readings: torch.Tensor) -> None:
        torch.autograd.grad(readings, leaves, inputs["grad"])

    for _ in range(2):
        backward(forward(sizes, inputs))
    readings = forward(sizes, inputs)
    print_table(f"{sizes.name} {picks} backward", profiled(lambda: backward(readings)))
    if with_forward:
        with torch.no_grad():
            print_table(f"{sizes.name} {picks} forward", profiled(lambda: forward(sizes, inputs)))


def main() -> None:
    """A table a shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="*", default=[s.name for s in SHAPES])
    add_option(parser)
    parser.add_argument("--forward", action="store_true", help="the forward as well")
    options = parser.parse_args()
    for sizes in SHAPES:
        for picks in options.slots if sizes.name in options.shapes else ():
            breakdown(sizes, picks, options.forward)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
