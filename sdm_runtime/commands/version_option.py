"""The ``--version`` of the commands. Needs neither torch nor the extension."""

from __future__ import annotations

from typing import Annotated

import typer

import sdm_runtime


def _print_version(asked: bool) -> None:
    if not asked:
        return
    try:
        typer.echo(f"sdm_runtime {sdm_runtime.__version__}")
    except AttributeError as error:
        raise typer.BadParameter(str(error)) from None
    raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version"),
]
