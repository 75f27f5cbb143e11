"""Which kernels a call of the layer runs, and which part of the layer each belongs to.

On the CPU torch's operators stand in for kernels, with their own time.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function

from sdm_runtime import SparseDeltaMemory

SELECTION, PROJECTIONS, COPIES, REST = "selection", "projections", "copies", "other"
CHAIN, CHUNKS, OPERATION = "operation's chain", "chunk kernels", "operation, other"
# Of our own kernels, by the folder of csrc/kernels they are in; others are parts by themselves.
ROOMS = {"step": CHAIN, "chunk": CHUNKS, "rows": CHUNKS, "linear": PROJECTIONS}
SOURCES = Path(__file__).resolve().parents[2] / "csrc/kernels"
# Of the library's, by what launched them: the outermost of these ranges, forward or backward, ...
RANGES = {
    "_ProductKeyTopK": SELECTION,
    "WriteRead": OPERATION,
}
# ... or else the innermost of these operators.
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
    for kernel, part in own_kernels().items():
        if name.startswith(kernel):
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


@functools.lru_cache(maxsize=1)
def own_kernels() -> dict[str, str]:
    """The part of each kernel of csrc/kernels, longer names before those that they begin with."""
    parts: dict[str, str] = {}
    for room in SOURCES.iterdir():
        for folder in room.iterdir() if room.name != "common" and room.is_dir() else ():
            name = folder.name
            alone = SELECTION if "select" in name else name
            parts |= {name: ROOMS.get(room.name, alone)} if folder.is_dir() else {}
    return dict(sorted(parts.items(), reverse=True))


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
        with operation_ranged(), profile(activities=[ProfilerActivity.CPU]) as profiler:
            work()
        return host_operators(list(profiler.events()))
    torch.cuda.synchronize(device)
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with operation_ranged(), profile(activities=activities) as profiler:
        work()
        torch.cuda.synchronize(device)
    return device_kernels(list(profiler.events()))


def layer_module() -> ModuleType:
    """Where the layer is written."""
    return sys.modules[SparseDeltaMemory.__module__]


@contextmanager
def operation_ranged() -> Iterator[None]:
    """Give the layer's call of the operation a range: without gradients autograd makes none."""
    module = layer_module()
    inner = getattr(module, "sdm_write_read", None)
    if inner is None:
        yield
        return

    def ranged(*args: Any, **kwargs: Any) -> Any:
        with record_function("WriteRead"):
            return inner(*args, **kwargs)

    with patch.object(module, "sdm_write_read", ranged):
        yield


def host_operators(events: list[FunctionEvent]) -> list[Kernel]:
    """Operators with their own time; those that took none are left out."""
    return [
        Kernel(event.name, part_of(event.name, operators_of(event)), event.self_cpu_time_total)
        for event in events
        if event.self_cpu_time_total > 0
    ]


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


def print_profile(found: list[Kernel], most: int) -> None:
    """The parts of a call, and the names that take longest."""
    counts = Counter(kernel.part for kernel in found)
    for part, us in by_part(found).items():
        print(f"    {us:10.1f} us {counts[part]:6d}  {part}")
    times: dict[tuple[str, str], float] = defaultdict(float)
    for kernel in found:
        times[kernel.name, kernel.part] += kernel.us
    names = Counter((kernel.name, kernel.part) for kernel in found)
    for (name, part), us in list(longest_first(times).items())[:most]:
        print(f"    {us:10.1f} us {names[name, part]:6d}  {name[:90]}  ({part})")


def longest_first(times: dict[Any, float]) -> dict[Any, float]:
    return dict(sorted(times.items(), key=lambda item: -item[1]))
