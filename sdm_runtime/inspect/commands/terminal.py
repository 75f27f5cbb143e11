"""The terminal: rich where there is one, plain text where the output goes elsewhere."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_PLAIN_WIDTH = 200  # columns; nothing is cut off in a pipe or a file


def make_console() -> Console:
    """A console on the present standard output."""
    terminal = sys.stdout.isatty()
    return Console(file=sys.stdout, highlight=False, width=None if terminal else _PLAIN_WIDTH)


def make_table(console: Console, *columns: str, right: tuple[str, ...] = ()) -> Table:
    """A table with these headings; those in ``right`` hold numbers."""
    table = Table(
        box=box.SIMPLE_HEAD if console.is_terminal else None,
        pad_edge=False,
        header_style="dim" if console.is_terminal else "",
    )
    for column in columns:
        justify: Any = "right" if column in right else "left"
        table.add_column(column, justify=justify, overflow="fold")
    return table


def add_row(table: Table, *cells: object, style: str = "") -> None:
    """A row of plain text: no cell is read as markup."""
    table.add_row(*(Text(str(cell)) for cell in cells), style=style)


def heading(console: Console, title: str, rest: str = "") -> None:
    """A line in bold, with more behind it."""
    line = Text(title, style="bold")
    line.append(f"  {rest}" if rest else "", style="not bold")
    console.print(line)


def say(console: Console, line: str, style: str = "") -> None:
    """A line of plain text."""
    console.print(Text(line, style=style))


def print_json(data: Any) -> None:
    """Data for scripts."""
    print(json.dumps(data, indent=2, allow_nan=False))
