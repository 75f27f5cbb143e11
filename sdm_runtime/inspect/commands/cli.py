"""The ``sdm-plan`` command.

Exit status: 0 fine; 1 differences or faults found; 2 a file that cannot be read as a plan or chain,
a wrong argument, or output that cannot be written. A reader that goes away changes none of them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from sdm_runtime.commands.version_option import Version
from sdm_runtime.files.reading import STANDARD_INPUT, Source, source_name
from sdm_runtime.inspect.commands.output import UNUSABLE, complain, reason, run
from sdm_runtime.inspect.commands.terminal import make_console, print_json
from sdm_runtime.inspect.reading.files import load
from sdm_runtime.inspect.reading.model import ChainModel, FileError

FOUND = 1  # differences or faults

app = typer.Typer(
    name="sdm-plan",
    help="Look into plan and chain files: needs neither torch nor a GPU nor the build they are of.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

# Not a Path, to which ./- and - are the same.
FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="A plan or chain file; - is standard input.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
PlanOption = Annotated[int | None, typer.Option("--plan", help="Only the plan with this index.")]


@app.callback()
def options(version: Version = False) -> None:
    """Take what belongs to no command; ``--version`` ends here."""


@app.command("show")
def show_command(file: FileArgument, plan: PlanOption = None, as_json: JsonOption = False) -> None:
    """What each plan launches: geometry, every field, pointer and patch."""
    from sdm_runtime.inspect.commands.as_data import chain_data, plan_data
    from sdm_runtime.inspect.commands.show import print_chain

    chain = _load(file, as_json)
    _check_plan(chain, plan, as_json)
    if as_json:
        print_json(chain_data(chain) if plan is None else plan_data(chain.plans[plan]))
    else:
        print_chain(make_console(), chain, plan)


@app.command("steps")
def steps_command(
    file: FileArgument,
    step: Annotated[
        list[int] | None, typer.Option("--step", help="A step; may be given again.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """The launches of some steps (default: first and last), patched, with the bytes they touch."""
    from sdm_runtime.inspect.commands.steps import check_steps, print_steps, steps_data

    chain = _load(file, as_json)
    steps = step or list(dict.fromkeys([chain.run_order[0], chain.run_order[-1]]))
    try:
        check_steps(chain, steps)
    except ValueError as error:
        _stop(str(error), as_json)
    if as_json:
        print_json(steps_data(chain, steps))
    else:
        print_steps(make_console(), chain, steps)


@app.command("diff")
def diff_command(a: FileArgument, b: FileArgument, as_json: JsonOption = False) -> None:
    """What differs between two files, field by field. Exit status 1 when anything does."""
    from sdm_runtime.inspect.commands.diff import diff, print_diff

    if a == b == "-":
        _stop("FILE: expected '-' for one of two files, got it for both", as_json)
    differences = diff(_load(a, as_json), _load(b, as_json))
    if as_json:
        print_json([difference.as_data() for difference in differences])
    else:
        print_diff(make_console(), differences)
    raise typer.Exit(FOUND if differences else 0)


@app.command("verify")
def verify_command(
    file: FileArgument,
    bindings: Annotated[
        Path | None,
        typer.Option(help="Where the operands are: JSON of sdm_runtime.inspect.bindings(chain)."),
    ] = None,
    device_images: Annotated[
        Path | None,
        typer.Option(help="A build's device_images.json; default: this installation's."),
    ] = None,
    device_uuid: Annotated[
        str | None, typer.Option(help="The device that the plans should belong to.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Warnings and unknowns count as faults.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Every check that the executor makes, and more. Exit status 1 when one fails."""
    from sdm_runtime.inspect.commands.findings import print_findings
    from sdm_runtime.inspect.verify import ERROR, verify
    from sdm_runtime.inspect.verify.bindings import load_bindings
    from sdm_runtime.inspect.verify.device import load_facts

    chain = _load(file, as_json)
    try:
        facts = load_facts(device_images)
        bound = load_bindings(bindings) if bindings else None
    except OSError as error:
        _stop(_unusable(error), as_json)
    except ValueError as error:
        _stop(str(error), as_json)
    found = verify(chain, facts=facts, bindings=bound, device_uuid=device_uuid)
    if as_json:
        print_json([finding.as_data() for finding in found])
    else:
        print_findings(make_console(), chain, found)
    failed = any(strict or finding.level == ERROR for finding in found)
    raise typer.Exit(FOUND if failed else 0)


@app.command("bytes")
def bytes_command(file: FileArgument, plan: PlanOption = None, as_json: JsonOption = False) -> None:
    """An annotated hex dump: what every byte of the file says."""
    from sdm_runtime.inspect.commands.bytes_view import print_bytes, spans_data

    chain = _load(file, as_json)
    _check_plan(chain, plan, as_json)
    if as_json:
        print_json(spans_data(chain, plan))
    else:
        print_bytes(make_console(), chain, plan)


@app.command("report")
def report_command(
    file: FileArgument,
    output: Annotated[str, typer.Option("-o", "--output", help="The page to write.")],
    trace: Annotated[
        Path | None, typer.Option(help="Kernel times: JSON of sdm_runtime.inspect.trace.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """One self-contained page: the chain as a diagram, parameters, byte map, timeline."""
    from sdm_runtime.inspect.report import write_report

    try:
        size = write_report(_source(file), output, trace=trace)
    except FileError as error:
        _stop_at(file, error, as_json)
    except OSError as error:
        _stop(_unusable(error), as_json)
    except ValueError as error:
        _stop(str(error), as_json)
    if as_json:
        print_json({"report": str(output), "bytes": size})


def _load(file: str, as_json: bool) -> ChainModel:
    try:
        return load(_source(file))
    except FileError as error:
        _stop_at(file, error, as_json)
    except OSError as error:
        _stop(_unusable(error), as_json)


def _source(file: str) -> Source:
    return STANDARD_INPUT if file == "-" else file


def _stop_at(file: str, error: FileError, as_json: bool) -> NoReturn:
    message = f"{source_name(_source(file))}: {error}"
    _stop(message, as_json, reason=error.reason, byte=error.byte)


def _unusable(error: OSError) -> str:
    """The file and the system's reason."""
    return f"{error.filename}: {reason(error)}" if error.filename else reason(error)


def _check_plan(chain: ChainModel, plan: int | None, as_json: bool) -> None:
    if plan is not None and not 0 <= plan < len(chain.plans):
        _stop(f"--plan: expected 0..{len(chain.plans) - 1}, got {plan}", as_json)


def _stop(message: str, as_json: bool, **more: object) -> NoReturn:
    """Report what makes a file or an argument unusable."""
    if as_json:
        print_json({"error": message, **more})
    complain(f"sdm-plan: {message}")
    raise typer.Exit(UNUSABLE)


def main() -> None:
    """The console script."""
    sys.exit(run(app, "sdm-plan"))


if __name__ == "__main__":
    main()
