"""A plan's parameters as a table, with the share of each operand that a step touches."""

from __future__ import annotations

from sdm_runtime.format.plan_format import FieldType
from sdm_runtime.format.records import word
from sdm_runtime.inspect.reading.model import Field, Operand, PlanModel
from sdm_runtime.inspect.reading.words import (
    device_text,
    dims,
    size,
    type_text,
    value_text,
)
from sdm_runtime.inspect.report.markup import Markup, element, join, table


def plan_section(plan: PlanModel, index: int) -> Markup:
    """A plan with its launch, its pointers and its numbers."""
    title = element("h3", element("span", str(index), class_="index"), plan.kernel)
    pointers = [field for field in plan.fields if field.type is FieldType.POINTER]
    numbers = [field for field in plan.fields if field.type is not FieldType.POINTER]
    return element(
        "section",
        title,
        _facts(plan),
        _pointer_table(plan, pointers) if pointers else "",
        _number_list(plan, numbers),
        id=f"plan-{index}",
        class_="plan",
    )


def _facts(plan: PlanModel) -> Markup:
    header = plan.header
    facts = [
        ("grid", dims(header.grid) + (" (empty: nothing is launched)" if plan.empty else "")),
        ("block", dims(header.block)),
        ("cluster", dims(header.cluster)),
        ("shared memory", size(header.shared_bytes)),
        ("programmatic", "yes (PDL)" if plan.programmatic else "no"),
        ("steps", str(plan.steps)),
        ("device", device_text(plan)),
        ("parameter layout", f"{header.layout_hash:016x}"),
    ]
    if plan.entry:
        facts.append(("entry", plan.entry))
    if any(header.image_hash):
        facts.append(("image", f"{header.image_hash.hex()[:16]}.."))
    return element(
        "dl",
        *(element("div", element("dt", name), element("dd", value)) for name, value in facts),
        class_="facts",
    )


def _pointer_table(plan: PlanModel, pointers: list[Field]) -> Markup:
    by_field = {operand.field: operand for operand in plan.operands}
    rows = [_pointer_row(plan, field, by_field.get(field.name)) for field in pointers]
    headings = ("pointer", "operand", "dtype", "access", "bytes", "aligned", "a step touches")
    return table(headings, rows)


def _pointer_row(plan: PlanModel, field: Field, operand: Operand | None) -> list[object]:
    name = element("td", field.name, class_="code")
    if operand is None:
        state = "null" if field.nullable else "null, but the kernel needs it"
        kind = "quiet" if field.nullable else "fault"
        return [name, element("td", state, class_=kind, colspan=6)]
    offset = f" + {operand.offset}" if operand.offset else ""
    access = word(operand.access)
    return [
        name,
        element("td", operand.name + offset, class_="code"),
        word(operand.dtype),
        element("td", element("span", access, class_=f"access {access.replace('/', '-')}")),
        element("td", f"{operand.extent:,}", class_="number"),
        element("td", operand.align, class_="number"),
        element("td", _share(plan, operand), class_="share"),
    ]


def _share(plan: PlanModel, operand: Operand) -> Markup:
    """A bar of the operand with the last step's share; the page's slider moves it."""
    if not operand.shared_out:
        return element("span", "any part", class_="quiet")
    first, last = plan.region(operand, 0), plan.region(operand, plan.steps - 1)
    bar = element(
        "span",
        element("i", style=_placed(last.start - operand.offset, last.bytes, operand.extent)),
        class_="bar",
        data_first=first.start - operand.offset,
        data_last=last.start - operand.offset,
        data_bytes=operand.step_bytes,
        data_extent=operand.extent,
        data_steps=plan.steps,
    )
    text = element(
        "span", f"{last.start - operand.offset:,} .. {last.end - operand.offset:,}", class_="range"
    )
    return join(bar, text)


def _placed(start: int, length: int, extent: int) -> str:
    whole = max(extent, 1)
    return f"left:{100 * start / whole:.4f}%;width:{max(100 * length / whole, 0.6):.4f}%"


def _number_list(plan: PlanModel, numbers: list[Field]) -> Markup:
    """Each number with its type; a patched one follows the page's slider."""
    return element("div", *(_number(plan, field) for field in numbers), class_="numbers")


def _number(plan: PlanModel, field: Field) -> Markup:
    value = value_text(field.value)
    shown = value if len(value) <= 26 else f"{value[:23]}..."
    where = element("span", f"{type_text(field)} at byte {field.offset}", class_="quiet")
    name = element("span", field.name, class_="code")
    patch = plan.patch_of.get(field.name)
    if patch is None:
        return element("div", name, element("b", shown, title=value), where)
    last = plan.steps - 1
    formula = element("span", f"= {patch.formula(plan.steps)}", class_="formula")
    moving = element(
        "b",
        patch.value(last),
        data_base=patch.base,
        data_stride=patch.stride,
        data_lowest=patch.lowest,
        data_highest=patch.highest,
    )
    return element("div", name, moving, formula, where, class_="patched")
