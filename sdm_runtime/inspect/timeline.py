"""Measured kernel times: the file that ``trace`` writes and what can be read from it.

Imports neither torch nor the extension. Times are microseconds from the first kernel's start.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

_FORMAT, _VERSION = "sdm-trace", 1
_CLOCK_TICK_US = 1e-3  # clocks count nanoseconds; less is a rounding of the microseconds


@dataclass(frozen=True)
class KernelTime:
    """One kernel that ran."""

    name: str
    start_us: float
    duration_us: float
    stream: int = 0

    @property
    def end_us(self) -> float:
        """When it had finished."""
        return self.start_us + self.duration_us


@dataclass(frozen=True)
class Trace:
    """Kernels in the order of their starts; ``source`` is "cuda" or "host"."""

    source: str
    kernels: tuple[KernelTime, ...]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write JSON that :func:`load_trace` reads."""
        data = {
            "format": _FORMAT,
            "version": _VERSION,
            "source": self.source,
            "kernels": [asdict(kernel) for kernel in self.kernels],
        }
        Path(path).write_text(json.dumps(data))

    @property
    def span_us(self) -> float:
        """From the first start to the last end."""
        if not self.kernels:
            return 0.0
        return max(k.end_us for k in self.kernels) - self.kernels[0].start_us


@dataclass(frozen=True)
class NameTimes:
    """The times of all kernels of one name, microseconds."""

    name: str
    count: int
    total: float
    least: float
    middle: float
    most: float


@dataclass(frozen=True)
class Overlap:
    """How consecutive kernels follow each other."""

    pairs: int
    early: int  # pairs whose second kernel started before the first had ended
    shared_us: float  # time in which both ran
    idle_us: float  # time in which neither did


def make_trace(source: str, kernels: Sequence[KernelTime]) -> Trace:
    """A trace that starts at 0."""
    ordered = sorted(kernels, key=lambda kernel: kernel.start_us)
    begin = ordered[0].start_us if ordered else 0.0
    shifted = [KernelTime(k.name, k.start_us - begin, k.duration_us, k.stream) for k in ordered]
    return Trace(source, tuple(shifted))


def load_trace(path: str | os.PathLike[str]) -> Trace:
    """Read what :meth:`Trace.save` wrote.

    Raises:
        ValueError: The file holds something else; the message says what.
        OSError: The file cannot be read.
    """
    try:
        data: dict[str, Any] = json.loads(Path(path).read_text())
        if (data["format"], data["version"]) != (_FORMAT, _VERSION):
            raise ValueError(f"format {data['format']} {data['version']}")
        kernels = [_kernel(entry) for entry in data["kernels"]]
        return make_trace(str(data["source"]), kernels)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{os.fspath(path)}: not a trace: {error!r}") from None


def _kernel(entry: dict[str, Any]) -> KernelTime:
    start, duration = float(entry["start_us"]), float(entry["duration_us"])
    if not (math.isfinite(start) and math.isfinite(duration) and duration >= 0):
        raise ValueError(f"a kernel from {start} us that takes {duration} us")
    return KernelTime(str(entry["name"]), start, duration, int(entry["stream"]))


def times_by_name(trace: Trace) -> list[NameTimes]:
    """The kernels' times, the most expensive name first."""
    groups: dict[str, list[float]] = {}
    for kernel in trace.kernels:
        groups.setdefault(kernel.name, []).append(kernel.duration_us)
    times = [
        NameTimes(name, len(t), sum(t), min(t), median(t), max(t)) for name, t in groups.items()
    ]
    return sorted(times, key=lambda entry: -entry.total)


def overlap(trace: Trace) -> Overlap:
    """How each kernel follows those before it."""
    early, shared, idle, busy_until = 0, 0.0, 0.0, -math.inf
    for index, kernel in enumerate(trace.kernels):
        if index:
            early += kernel.start_us < busy_until - _CLOCK_TICK_US / 2
            shared += max(min(busy_until, kernel.end_us) - kernel.start_us, 0.0)
            idle += max(kernel.start_us - busy_until, 0.0)
        busy_until = max(busy_until, kernel.end_us)
    return Overlap(max(len(trace.kernels) - 1, 0), early, shared, idle)
