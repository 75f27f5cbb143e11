"""``sdm-plan diff``: what differs between two files, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from sdm_runtime.format.records import word
from sdm_runtime.inspect.commands.as_data import (
    field_data,
    geometry_data,
    identity_data,
    operand_data,
    patch_data,
)
from sdm_runtime.inspect.commands.pairing import pair_in_order
from sdm_runtime.inspect.commands.terminal import say
from sdm_runtime.inspect.reading.model import ChainModel, PlanModel

_ABSENT = "(none)"


@dataclass(frozen=True)
class Difference:
    """``what`` is ``a`` in the first file and ``b`` in the second."""

    where: str  # "chain", "plan 2 gx_pa2"
    what: str  # "grid", "field hd", "operand d_u: extent"
    a: Any
    b: Any

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def diff(a: ChainModel, b: ChainModel) -> list[Difference]:
    """Every difference that matters to a run; checksums and positions follow from these."""
    return [*_compare("chain", _chain_facts(a), _chain_facts(b)), *_compare_plans(a, b)]


def _chain_facts(chain: ChainModel) -> dict[str, Any]:
    order = word(chain.order)
    return {"kind": chain.kind, "steps": chain.steps, "order": order, "plans": len(chain.plans)}


def _compare_plans(a: ChainModel, b: ChainModel) -> Iterator[Difference]:
    """Plans are paired by kernel, in order; one without a partner is a difference of its own."""
    names_a = [plan.kernel for plan in a.plans]
    names_b = [plan.kernel for plan in b.plans]
    a_begin = b_begin = 0
    for i, j in [*pair_in_order(names_a, names_b), (len(names_a), len(names_b))]:
        for alone in range(a_begin, i):
            yield Difference(f"plan {alone} {names_a[alone]}", "plan", names_a[alone], _ABSENT)
        for alone in range(b_begin, j):
            yield Difference(f"plan {alone} {names_b[alone]}", "plan", _ABSENT, names_b[alone])
        if i < len(names_a):
            where = f"plan {i} {names_a[i]}" if i == j else f"plan {i}/{j} {names_a[i]}"
            yield from _compare(where, _plan_facts(a.plans[i]), _plan_facts(b.plans[j]))
        a_begin, b_begin = i + 1, j + 1


def _plan_facts(plan: PlanModel) -> dict[str, Any]:
    """A flat table of everything a plan says."""
    facts: dict[str, Any] = {"entry": plan.entry or None, "steps": plan.steps}
    facts |= identity_data(plan) | geometry_data(plan)
    for field in plan.fields:
        data = field_data(field)
        name = data.pop("name")
        facts[f"field {name}"] = data.pop("value")
        facts |= {f"field {name}: {key}": value for key, value in data.items()}
    for patch in plan.patches:
        data = patch_data(patch, plan.steps)
        keys = ("kind", "base", "stride", "lowest", "highest")
        facts |= {f"patch of {patch.field}: {key}": data[key] for key in keys}
    for operand in plan.operands:
        data = operand_data(operand)
        field_name = data.pop("field")
        facts |= {f"pointer {field_name}: {key}": value for key, value in data.items()}
    return facts


def _compare(where: str, a: dict[str, Any], b: dict[str, Any]) -> Iterator[Difference]:
    for what in dict.fromkeys([*a, *b]):
        left, right = a.get(what, _ABSENT), b.get(what, _ABSENT)
        if left != right:
            yield Difference(where, what, left, right)


def print_diff(console: Console, differences: list[Difference]) -> None:
    """One line a difference, grouped by plan."""
    if not differences:
        say(console, "no difference")
    where = None
    for difference in differences:
        if difference.where != where:
            where = difference.where
            say(console, where, style="bold")
        line = Text(f"  {difference.what}: ")
        line.append(str(difference.a), style="red")
        line.append(" -> ")
        line.append(str(difference.b), style="green")
        console.print(line)
