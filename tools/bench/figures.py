"""The one form in which every benchmark here writes its figures as JSON, and compare.py reads them.

One object: what was run (``bench``, ``command``), on what (``device``, ``torch``, ``driver``), and
``figures``, each a name of its own, a unit of UNITS, a figure and its spread: the largest sample
less the smallest, in the same unit. Spread and driver may be null: not measured, none there. What
a benchmark says besides (geometries, reasons) stands in a figure's ``details``, which nobody
compares.
"""

from __future__ import annotations

import json
import platform
import re
import shlex
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

try:
    from sdm_runtime.files.json_files import expect, member, number, read_json
    from sdm_runtime.files.writing import write_file
except ModuleNotFoundError as error:
    if error.name != "sdm_runtime.files":
        raise
    # An older build, to be measured: figures are written and none are read.

    def write_file(path: Path, data: bytes) -> None:  # type: ignore[misc]
        path.write_bytes(data)


UNITS = ("us", "ms", "x", "share", "count")  # of each, more is slower


@dataclass(frozen=True)
class Figure:
    """One measured figure; ``name`` is alone in its file."""

    name: str
    unit: str
    figure: float
    spread: float | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """What one run of a benchmark measured."""

    bench: str
    command: str
    device: str
    torch: str
    driver: str | None
    figures: list[Figure]


def of_samples(name: str, unit: str, samples: Sequence[float], **details: Any) -> Figure:
    """The median of samples and their spread."""
    spread = max(samples) - min(samples)
    return Figure(name, unit, statistics.median(samples), spread, details)


def checked(report: Report) -> Report:
    """The report itself. Raises ValueError for a unit that nobody knows, or a name used twice."""
    names = [figure.name for figure in report.figures]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"figures: expected every name once, got {name} {names.count(name)} x")
    for figure in report.figures:
        if figure.unit not in UNITS:
            known = ", ".join(UNITS)
            raise ValueError(f"{figure.name}: unit: expected one of {known}, got {figure.unit}")
        if figure.figure < 0:
            raise ValueError(f"{figure.name}: expected a figure of 0 or more, got {figure.figure}")
    return report


def write_report(path: Path, report: Report) -> None:
    """Raises ValueError as :func:`checked` does, OSError where it cannot be written."""
    text = json.dumps(asdict(checked(report)), indent=1) + "\n"
    write_file(path, text.encode())


def read_report(path: Path) -> Report:
    """Raises ValueError, naming the file, for what is not of the one form; OSError."""
    try:
        return _report(read_json(path))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _report(value: Any) -> Report:
    data = expect("the file", value, dict)
    driver = data.get("driver")
    return checked(
        Report(
            bench=member(data, "bench", str),
            command=member(data, "command", str),
            device=member(data, "device", str),
            torch=member(data, "torch", str),
            driver=None if driver is None else expect("driver", driver, str),
            figures=[_figure(each) for each in member(data, "figures", list)],
        )
    )


def _figure(value: Any) -> Figure:
    data = expect("figures", value, dict)
    spread = None if data.get("spread") is None else number(data, "spread")
    name, unit = member(data, "name", str), member(data, "unit", str)
    details = expect("details", data.get("details", {}), dict)
    return Figure(name, unit, number(data, "figure"), spread, details)


def slug(name: str) -> str:
    """A device's name as a folder: "NVIDIA H200" is nvidia_h200."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def this_command(words: Sequence[str]) -> str:
    """The command of a benchmark's ``sys.argv``, without where its JSON goes."""
    script, *options = words
    kept: list[str] = []
    for before, word in zip(["", *options], options, strict=False):
        if "--json" not in (before, word.partition("=")[0]):
            kept.append(word)
    return shlex.join(["python", f"tools/bench/{Path(script).name}", *kept])


def save(path: Path, figures: list[Figure], *, cpu: bool = False) -> None:
    """Write what the running benchmark measured on the GPU at hand, or on the CPU."""
    import torch
    from torch.utils import collect_env

    driver = None if cpu else collect_env.get_nvidia_driver_version(collect_env.run)
    device = f"{_cpu()}, {torch.get_num_threads()} threads" if cpu else torch.cuda.get_device_name()
    bench = Path(sys.argv[0]).stem
    command = this_command(sys.argv)
    write_report(path, Report(bench, command, device, str(torch.__version__), driver, figures))


def _cpu() -> str:
    """The processor's name, where the system says it."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.*)$", info.read_text(), re.M) if info.exists() else None
    return found[1].strip() if found else platform.processor() or platform.machine()
