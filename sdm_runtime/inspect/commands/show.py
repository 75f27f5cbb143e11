"""``sdm-plan show``: what each plan of a file launches."""

from __future__ import annotations

from rich.console import Console

from sdm_runtime.format.plan_format import FieldType
from sdm_runtime.format.records import word
from sdm_runtime.inspect.commands.terminal import add_row, heading, make_table, say
from sdm_runtime.inspect.reading.model import ChainModel, Field, PlanModel
from sdm_runtime.inspect.reading.traffic import step_traffic
from sdm_runtime.inspect.reading.words import (
    device_text,
    dims,
    patch_text,
    plural,
    pointer_text,
    share_text,
    size,
    type_text,
    value_text,
)


def print_chain(console: Console, chain: ChainModel, only_plan: int | None = None) -> None:
    """The whole file, or one of its plans."""
    if only_plan is None:
        _print_summary(console, chain)
    for index, plan in enumerate(chain.plans):
        if only_plan in (None, index):
            console.print()
            print_plan(console, plan, index)


def _print_summary(console: Console, chain: ChainModel) -> None:
    counts = f"{plural(len(chain.plans), 'plan')} x {plural(chain.steps, 'step')}"
    heading(
        console,
        chain.kind,
        f"{counts} = {plural(chain.launches, 'launch')}, {word(chain.backend)}, "
        f"{len(chain.data)} bytes",
    )
    order = " -> ".join(plan.kernel for plan in chain.plans)
    say(console, f"for ti = {chain.run_text}:  {order}")
    traffic = step_traffic(chain)
    line = f"a step reads {size(traffic.read)} and writes {size(traffic.written)}"
    if traffic.anywhere:
        names = ", ".join(traffic.anywhere)
        line += (
            f", and any part of {names} (read {size(traffic.read_anywhere)}, "
            f"written {size(traffic.written_anywhere)} at most)"
        )
    say(console, line)


def print_plan(console: Console, plan: PlanModel, index: int) -> None:
    """One plan: identity, geometry, every field."""
    heading(
        console,
        f"plan {index}  {plan.kernel}",
        f"{plural(plan.steps, 'step')}, {len(plan.data)} bytes at byte {plan.at}",
    )
    say(console, f"  {_launch_line(plan)}")
    say(console, f"  {device_text(plan)}, {_image_line(plan)}")
    table = make_table(console, "byte", "field", "type", "value", "per step", right=("byte",))
    for field in plan.fields:
        add_row(
            table,
            field.offset,
            field.name,
            type_text(field),
            field_value(plan, field),
            _per_step(plan, field),
        )
    console.print(table)


def _launch_line(plan: PlanModel) -> str:
    header = plan.header
    if plan.library:
        return f"library call {plan.entry}"
    parts = [
        f"grid {dims(header.grid)}" + (" (empty: nothing is launched)" if plan.empty else ""),
        f"block {dims(header.block)}",
        f"cluster {dims(header.cluster)}",
        f"{header.shared_bytes} bytes of shared memory",
        "programmatic (PDL)" if plan.programmatic else "no PDL",
    ]
    return ", ".join(parts)


def _image_line(plan: PlanModel) -> str:
    image = plan.header.image_hash
    layout = f"parameter layout {plan.header.layout_hash:016x}"
    if not any(image):
        return layout
    return f"{plan.entry} in image {image.hex()[:16]}.., {layout}"


def field_value(plan: PlanModel, field: Field) -> str:
    """A number, or where a pointer points."""
    if field.type is not FieldType.POINTER:
        return value_text(field.value)
    operand = plan.operand_of.get(field.name)
    if operand:
        return f"{pointer_text(operand)}, {word(operand.dtype)}, aligned {operand.align}"
    return "null" if field.nullable else "null, but the kernel needs it"


def _per_step(plan: PlanModel, field: Field) -> str:
    patch = plan.patch_of.get(field.name)
    if patch:
        return patch_text(patch, plan.steps)
    operand = plan.operand_of.get(field.name)
    return share_text(operand) if operand else ""
