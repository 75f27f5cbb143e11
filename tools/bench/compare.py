"""What a benchmark's figures are against those that are committed for the device.

    python tools/bench/step_kernels.py --json new.json
    python tools/bench/compare.py new.json [--against OLD.json] [--threshold 5] [--keep]

Every figure in both, by how much it is slower; those beyond the threshold are flagged, and then the
status is 1. What is only in one of the two is said. Without --against the committed file is
tools/bench/baselines/<device>/<bench>.json; --keep writes new.json there after the comparison.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from figures import Figure, Report, read_report, slug, write_report
from rich.console import Console
from rich.table import Table

BASELINES = Path(__file__).with_name("baselines")
ERROR = 2


class Change(NamedTuple):
    """One figure in both files; ``slower`` is a share of the old one: 0.05 is 5% slower."""

    old: Figure
    new: Figure
    slower: float


def slower_by(old: Figure, new: Figure) -> float:
    """By which share of ``old`` the new figure is slower; negative where it is faster.

    Raises:
        ValueError: The units differ.
    """
    if old.unit != new.unit:
        raise ValueError(f"{new.name}: expected {old.unit}, as before, got {new.unit}")
    if old.figure == 0:
        return 0.0 if new.figure == 0 else math.inf
    return new.figure / old.figure - 1


def changes(old: Report, new: Report) -> list[Change]:
    """The figures of both, in the new one's order. Raises ValueError where there is none."""
    before = {figure.name: figure for figure in old.figures}
    both = [(before[figure.name], figure) for figure in new.figures if figure.name in before]
    if not both:
        raise ValueError(f"expected figures that both files have, of {old.bench} and {new.bench}")
    return [Change(was, now, slower_by(was, now)) for was, now in both]


def missing(from_report: Report, in_report: Report) -> list[str]:
    """Names that are in the one and not in the other."""
    there = {figure.name for figure in from_report.figures}
    return [figure.name for figure in in_report.figures if figure.name not in there]


def flagged(found: list[Change], threshold: float) -> list[Change]:
    """Those slower by more than ``threshold`` percent; what a division rounds does not count."""
    return [change for change in found if change.slower > threshold / 100 + 1e-9]


def baseline_of(report: Report, folder: Path | None = None) -> Path:
    """Where the committed figures of this benchmark on this device are."""
    return (folder or BASELINES) / slug(report.device) / f"{report.bench}.json"


def written(figure: Figure) -> str:
    spread = "" if figure.spread is None else f" +- {figure.spread:.3g}"
    return f"{figure.figure:.4g}{spread} {figure.unit}"


def show(old: Report, new: Report, threshold: float, console: Console) -> int:
    """Print all of it; the number of figures flagged."""
    for name in ("device", "torch", "driver", "command"):
        was, now = getattr(old, name), getattr(new, name)
        if was != now:
            console.print(f"{name}: {was or 'not known'} before, {now or 'not known'} now")
    found = changes(old, new)
    slow = flagged(found, threshold)
    table = Table("figure", "before", "now", "slower", box=None)
    for change in found:
        mark = "  SLOWER" if change in slow else ""
        words = (written(change.old), written(change.new), f"{change.slower:+.1%}{mark}")
        table.add_row(change.new.name, *words, style="bold red" if mark else "")
    console.print(table)
    for word, names in (("new", missing(old, new)), ("gone", missing(new, old))):
        for name in names:
            console.print(f"{word}: {name}")
    console.print(f"{len(slow)} of {len(found)} figures are more than {threshold:g}% slower")
    return len(slow)


def main(
    new: Annotated[Path, typer.Argument(help="what the benchmark wrote with --json")],
    against: Annotated[Path | None, typer.Option(help="compare with this file")] = None,
    threshold: Annotated[float, typer.Option(min=0, help="percent slower that are flagged")] = 5,
    keep: Annotated[bool, typer.Option(help="make it the committed file of the device")] = False,
) -> None:
    """Compare a benchmark's figures with the committed ones; status 1 where one is slower."""
    console = Console(soft_wrap=True, markup=False, highlight=False)
    try:
        report = read_report(new)
        committed = baseline_of(report)
        path = against or committed
        slow = 0
        if path.exists() or against or not keep:
            slow = show(read_report(path), report, threshold, console)
        if keep:
            committed.parent.mkdir(parents=True, exist_ok=True)
            write_report(committed, report)
            console.print(f"kept as {committed}")
    except (OSError, ValueError) as error:
        Console(stderr=True, soft_wrap=True, markup=False).print(f"compare: {error}")
        raise typer.Exit(ERROR) from error
    raise typer.Exit(1 if slow else 0)


if __name__ == "__main__":
    typer.run(main)
