"""Findings on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from sdm_runtime.inspect.commands.terminal import say
from sdm_runtime.inspect.reading.model import ChainModel
from sdm_runtime.inspect.reading.words import plural
from sdm_runtime.inspect.verify.findings import ERROR, UNKNOWN, WARNING, Finding

_STYLES = {ERROR: "bold red", WARNING: "yellow", UNKNOWN: "blue"}


def print_findings(console: Console, chain: ChainModel, found: list[Finding]) -> None:
    """A line per finding, then the count."""
    for finding in found:
        line = Text(f"{finding.level:<8}", style=_STYLES[finding.level])
        line.append(f"{finding.check}: ", style="bold")
        if finding.plan is not None:
            line.append(f"plan {finding.plan} ({finding.kernel}): ", style="default")
        line.append(finding.message, style="default")
        if finding.byte is not None:
            line.append(f" (byte {finding.byte})", style="dim")
        console.print(line, soft_wrap=True)
    say(console, _summary(chain, found))


def _summary(chain: ChainModel, found: list[Finding]) -> str:
    counts = {
        level: sum(finding.level == level for finding in found)
        for level in (ERROR, WARNING, UNKNOWN)
    }
    checked = f"{plural(len(chain.plans), 'plan')}, {plural(chain.steps, 'step')}"
    return (
        f"{checked}: {plural(counts[ERROR], 'error')}, {plural(counts[WARNING], 'warning')}, "
        f"{counts[UNKNOWN]} not known here"
    )
