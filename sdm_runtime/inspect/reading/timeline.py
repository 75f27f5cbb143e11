"""Measured kernel times: the file that ``trace`` writes and what can be read from it.

Imports neither torch nor the extension. Times are microseconds from the first kernel's start.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from sdm_runtime.files.json_files import expect, member, number, read_json
from sdm_runtime.files.reading import Source, source_name
from sdm_runtime.files.writing import write_file

_FORMAT, _VERSION = "sdm-trace", 1
_MOST_US = 1e15  # thirty years; sums of such times stay finite and exact to a microsecond or so
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
        """Write JSON that :func:`load_trace` reads; the file is replaced whole or not at all.

        Raises:
            ValueError: A time is not a finite number.
            OSError: The file cannot be written.
        """
        data = {
            "format": _FORMAT,
            "version": _VERSION,
            "source": self.source,
            "kernels": [asdict(kernel) for kernel in self.kernels],
        }
        write_file(path, json.dumps(data, allow_nan=False).encode())

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


def load_trace(path: Source) -> Trace:
    """Read what :meth:`Trace.save` wrote, from a regular file or a pipe.

    Raises:
        ValueError: The file holds something else; the message says what.
        OSError: The file cannot be read, as ``sdm_runtime.files.reading.read_file`` says.
    """
    try:
        data = expect("trace", read_json(path), dict)
        given = data.get("format"), data.get("version")
        if given != (_FORMAT, _VERSION):
            raise ValueError(f"format: expected {_FORMAT} {_VERSION}, got {given[0]} {given[1]}")
        source = member(data, "source", str)
        entries = member(data, "kernels", list)
        return make_trace(source, [_kernel(i, entry) for i, entry in enumerate(entries)])
    except ValueError as error:
        raise ValueError(f"{source_name(path)}: not a trace: {error}") from None


def _kernel(index: int, entry: Any) -> KernelTime:
    where = f"kernels[{index}]"
    try:
        values = expect("entry", entry, dict)
        name, stream = member(values, "name", str), member(values, "stream", int)
        start, duration = number(values, "start_us"), number(values, "duration_us")
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    if not (abs(start) <= _MOST_US and 0 <= duration <= _MOST_US):
        raise ValueError(
            f"{where}: expected times up to {_MOST_US:g} us, got {duration:g} us from {start:g} us"
        )
    return KernelTime(name, start, duration, stream)


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
