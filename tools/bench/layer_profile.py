"""Which kernels a call of the layer runs, and which part of the layer each belongs to.

On the CPU torch's operators stand in for kernels, with their own time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

SELECTION, PROJECTIONS, COPIES, REST = "selection", "projections", "copies", "other"
CHAIN, CHUNKS, OPERATION = "operation's chain", "chunk kernels", "operation, other"
GATES, DECODING = "gates", "decoding kernels"
# Of our own kernels, by the beginning of their name.
KERNELS = {
    CHAIN: ("gx_", "fx_", "chain_"),
    CHUNKS: ("chunk_", "pair_matrices", "token_gradients", "plane_reduce", "quantize_rows"),
    SELECTION: ("product_key", "key_select", "slot_select", "select_"),
    PROJECTIONS: ("bf16_linear", "grouped_linear"),
    GATES: ("gates", "layer_gates"),
    DECODING: ("decode", "layer_"),
}
# Of the library's, by the operator that launched them: the outermost of the first two lines, or
# else the innermost.
RANGES = {
    "_ProductKeyTopK": SELECTION,
    "WriteRead": OPERATION,
}
OPERATORS = {
    PROJECTIONS: ("aten::linear", "aten::addmm", "aten::mm", "aten::matmul", "Addmm", "MmBackward"),
    COPIES: ("aten::copy_", "aten::clone", "aten::contiguous", "aten::cat", "Mem"),
}


class Kernel(NamedTuple):
    """One launch, copy or fill; microseconds."""

    name: str
    part: str
    us: float

    @property
    def is_copy(self) -> bool:
        """Whether no kernel but the copy engine or a fill did it."""
        return self.name.startswith(("Memcpy", "Memset"))


def part_of(name: str, operators: Iterable[str]) -> str:
    """The part of a kernel that these operators launched, the innermost first."""
    for part, starts in KERNELS.items():
        if name.startswith(starts):
            return part
    above = [each.removeprefix("autograd::engine::evaluate_function: ") for each in operators]
    for operator in reversed(above):
        for start, part in RANGES.items():
            if operator.startswith(start):
                return part
    for operator in [*above, name]:
        for part, starts in OPERATORS.items():
            if operator.startswith(starts):
                return part
    return REST


def operators_of(event: FunctionEvent | None) -> list[str]:
    """The names of an operator and those around it."""
    names = []
    while event is not None:
        names.append(event.name)
        event = event.cpu_parent
    return names


def profiled(work: Callable[[], object], device: torch.device) -> list[Kernel]:
    """What one call ran."""
    if device.type == "cpu":
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            work()
        return [
            Kernel(event.name, part_of(event.name, operators_of(event)), event.self_cpu_time_total)
            for event in profiler.events()
        ]
    torch.cuda.synchronize(device)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        work()
        torch.cuda.synchronize(device)
    return device_kernels(list(profiler.events()))


def device_kernels(events: list[FunctionEvent]) -> list[Kernel]:
    """The kernels among the events of a profile.

    The device's own events are all there is; operators say which of them they launched.
    """
    launched: dict[tuple[str, float], list[FunctionEvent]] = defaultdict(list)
    for event in events:
        for kernel in event.kernels if event.device_type == DeviceType.CPU else ():
            launched[kernel.name, kernel.duration].append(event)
    found = []
    for event in events:
        if event.device_type != DeviceType.CUDA or event.is_user_annotation:
            continue
        us = event.time_range.elapsed_us()
        by = launched[event.name, us]
        operators = operators_of(by.pop(0) if by else None)
        found.append(Kernel(event.name, part_of(event.name, operators), us))
    return found


def by_part(found: list[Kernel]) -> dict[str, float]:
    """Microseconds of each part, the longest first."""
    times: dict[str, float] = defaultdict(float)
    for kernel in found:
        times[kernel.part] += kernel.us
    return longest_first(times)


def print_parts(title: str, found: list[Kernel], most: int) -> None:
    """The parts of a call and its most expensive kernels by name."""
    counts = Counter(kernel.part for kernel in found)
    print(f"  {title}: {len(found)} launches, {sum(k.us for k in found):.1f} us of the device")
    for part, us in by_part(found).items():
        print(f"    {us:10.1f} us {counts[part]:6d}  {part}")
    times: dict[tuple[str, str], float] = defaultdict(float)
    for kernel in found:
        times[kernel.part, kernel.name] += kernel.us
    names = Counter((kernel.part, kernel.name) for kernel in found)
    for (part, name), us in list(longest_first(times).items())[:most]:
        print(f"      {us:10.1f} us {names[part, name]:6d}  {part}: {name[:100]}")


def longest_first(times: dict[Any, float]) -> dict[Any, float]:
    return dict(sorted(times.items(), key=lambda item: -item[1]))
