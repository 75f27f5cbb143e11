"""``sdm-plan steps``: the launches of some steps, exactly as they are issued."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from sdm_runtime.format.records import word
from sdm_runtime.inspect.commands.terminal import add_row, heading, make_table, say
from sdm_runtime.inspect.reading.model import ChainModel, Operand, PlanModel
from sdm_runtime.inspect.reading.parameters import patched_block
from sdm_runtime.inspect.reading.words import dims, plural


def check_steps(chain: ChainModel, steps: Sequence[int]) -> None:
    """Raises ValueError for a step that the file does not have."""
    for step in steps:
        if not 0 <= step < chain.steps:
            raise ValueError(f"--step: expected 0..{chain.steps - 1}, got {step}")


def launch_data(plan: PlanModel, index: int, ti: int) -> dict[str, Any]:
    """One launch of one step."""
    header = plan.header
    return {
        "step": ti,
        "plan": index,
        "kernel": plan.kernel,
        "entry": plan.entry or None,
        "launched": not plan.empty,
        "grid": list(header.grid),
        "block": list(header.block),
        "cluster": list(header.cluster),
        "shared_bytes": header.shared_bytes,
        "programmatic": plan.programmatic,
        "patched": {patch.field: patch.value(ti) for patch in plan.patches},
        "operands": [_operand_data(plan, operand, ti) for operand in plan.operands],
        "parameters": patched_block(plan, ti).hex(),
    }


def steps_data(chain: ChainModel, steps: Sequence[int]) -> list[dict[str, Any]]:
    """The launches of ``steps``, in the order given, each step's in the chain's order."""
    return [launch_data(plan, index, ti) for ti in steps for index, plan in enumerate(chain.plans)]


def _operand_data(plan: PlanModel, operand: Operand, ti: int) -> dict[str, Any]:
    region = plan.region(operand, ti)
    return {
        "name": operand.name,
        "field": operand.field,
        "access": word(operand.access),
        "start": region.start,
        "end": region.end,
        "exact": region.exact,
    }


def print_steps(console: Console, chain: ChainModel, steps: Sequence[int]) -> None:
    """A table of launches for every step."""
    for ti in steps:
        heading(console, f"step {ti}", f"of {chain.run_text}")
        for index, plan in enumerate(chain.plans):
            _print_launch(console, plan, index, ti)
        console.print()


def _print_launch(console: Console, plan: PlanModel, index: int, ti: int) -> None:
    header = plan.header
    geometry = "empty grid: nothing is launched"
    if not plan.empty:
        geometry = f"grid {dims(header.grid)}, block {dims(header.block)}"
        geometry += ", programmatic" if plan.programmatic else ""
    say(console, f"  plan {index}  {plan.kernel}  {geometry}", style="bold")
    patched = ", ".join(f"{patch.field} = {patch.value(ti)}" for patch in plan.patches)
    say(console, f"    {patched or 'nothing is patched'}")
    table = make_table(console, "    pointer", "operand", "access", "bytes", "", right=("bytes",))
    for operand in plan.operands:
        region = plan.region(operand, ti)
        span = f"{region.start} .. {region.end}"
        note = plural(region.bytes, "byte") if region.exact else "any of these"
        add_row(table, f"    {operand.field}", operand.name, word(operand.access), span, note)
    console.print(table)
