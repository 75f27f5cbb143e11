"""``sdm-plan bytes``: an annotated hex dump."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from sdm_runtime.inspect.commands.terminal import heading
from sdm_runtime.inspect.reading.model import ChainModel
from sdm_runtime.inspect.reading.spans import Span, file_spans

_ROW = 16  # bytes a line
_STYLES = {
    "header": "cyan",
    "entries": "cyan",
    "fields": "green",
    "patches": "magenta",
    "relocations": "yellow",
    "parameters": "blue",
}


def chosen_spans(chain: ChainModel, only_plan: int | None) -> list[Span]:
    """The spans of one plan, or all."""
    return [span for span in file_spans(chain) if only_plan in (None, span.plan)]


def spans_data(chain: ChainModel, only_plan: int | None = None) -> list[dict[str, Any]]:
    """For JSON: every span with its bytes in hex."""
    return [
        {
            "start": span.start,
            "size": span.size,
            "group": span.group,
            "plan": span.plan,
            "record": span.record,
            "member": span.member,
            "meaning": span.meaning,
            "bytes": chain.data[span.start : span.end].hex(),
        }
        for span in chosen_spans(chain, only_plan)
    ]


def print_bytes(console: Console, chain: ChainModel, only_plan: int | None = None) -> None:
    """A heading per record, a line per member."""
    record: tuple[int | None, str] | None = None
    for span in chosen_spans(chain, only_plan):
        if (span.plan, span.record) != record:
            record = (span.plan, span.record)
            where = "" if span.plan is None else f"plan {span.plan} "
            heading(console, f"{where}{span.record}")
        _print_span(console, span, chain.data[span.start : span.end])


def _print_span(console: Console, span: Span, data: bytes) -> None:
    for row in range(0, len(data), _ROW):
        piece = data[row : row + _ROW]
        line = Text(f"{span.start + row:8d}  ", style="dim")
        line.append(f"{piece.hex(' '):<{3 * _ROW}}", style=_STYLES[span.group])
        if row == 0:
            line.append(f" {span.member:<16} ", style="bold")
            line.append(span.meaning if len(span.meaning) <= 64 else span.meaning[:61] + "...")
        elif not any(data[row:]):
            line.append(f" ({len(data) - row} more bytes, all zero)", style="dim")
        console.print(line, soft_wrap=True)
        if row and not any(data[row:]):
            return
