"""Do the steps stay inside the operands? By formula, not by trying 2^31 steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from sdm_runtime.format.plan_format import PatchKind
from sdm_runtime.inspect.reading.model import Operand, PlanModel
from sdm_runtime.inspect.verify.findings import Finding, Place

_INT64 = (-(1 << 63), (1 << 63) - 1)
_INT32 = (-(1 << 31), (1 << 31) - 1)


def check_extents(place: Place) -> Iterator[Finding]:
    """Every step's share lies in its operand."""
    for operand in place.plan.operands:
        for leaves in (_leaves_late, _leaves_early):
            bad = _bad_steps(partial(leaves, place.plan, operand), place.plan.steps)
            if bad:
                yield _outside(place, operand, *bad)


def _leaves_late(plan: PlanModel, operand: Operand, ti: int) -> bool:
    region, end = plan.region(operand, ti), operand.offset + operand.extent
    nothing_left = region.start >= end and operand.extent > 0
    return region.end > end or nothing_left


def _leaves_early(plan: PlanModel, operand: Operand, ti: int) -> bool:
    return plan.region(operand, ti).start < operand.offset


def _outside(place: Place, operand: Operand, first: int, last: int) -> Finding:
    region = place.plan.region(operand, last)
    which = f"step {last} alone" if first == last else f"steps {first}..{last}"
    message = (
        f"{which} of {place.plan.steps} leaves '{operand.name}': step {last} touches bytes "
        f"{region.start}..{region.end}, the operand has bytes "
        f"{operand.offset}..{operand.offset + operand.extent}"
    )
    return place.error("extent", message, subject=operand.name, step=first, byte=operand.record_at)


def check_patches(place: Place) -> Iterator[Finding]:
    """Patched numbers fit their fields, and patched pointers stay aligned."""
    plan = place.plan
    align = {operand.field: operand.align for operand in plan.operands}
    for patch in plan.patches:
        where = {"subject": patch.field, "byte": patch.record_at}
        ends = (patch.base, patch.base + (plan.steps - 1) * patch.stride)
        if min(ends) < _INT64[0] or max(ends) > _INT64[1]:
            message = f"patch of '{patch.field}': base + step * stride leaves int64"
            yield place.error("patch", message, **where)
        if patch.kind is PatchKind.INT32 and not (
            _INT32[0] <= patch.lowest and patch.highest <= _INT32[1]
        ):
            message = f"patch of '{patch.field}': its clamp leaves int32"
            yield place.error("patch", message, **where)
        if patch.kind is not PatchKind.POINTER:
            continue
        if patch.field not in align:
            message = f"patch of pointer '{patch.field}', which has no operand"
            yield place.error("patch", message, **where)
            continue
        values = (patch.base, patch.stride, patch.value(0), patch.value(plan.steps - 1))
        if any(value % align[patch.field] for value in values):
            message = (
                f"patch of pointer '{patch.field}' moves it off its alignment of "
                f"{align[patch.field]} bytes"
            )
            yield place.error("patch", message, **where)


def check_step_shares(place: Place) -> Iterator[Finding]:
    """Steps that write an operand without reading it do not write over each other."""
    for operand in place.plan.operands:
        overlapping = 0 < operand.step_stride < operand.step_bytes
        if operand.writes and not operand.reads and overlapping and place.plan.steps > 1:
            message = (
                f"'{operand.name}': every step writes {operand.step_bytes} bytes, the next one "
                f"starts {operand.step_stride} bytes on: steps overwrite each other"
            )
            yield place.error(
                "overlap", message, subject=operand.name, step=0, byte=operand.record_at
            )


def _bad_steps(is_bad: Callable[[int], bool], steps: int) -> tuple[int, int] | None:
    """The first and last bad step. A clamped line is bad at one end of the steps or nowhere."""
    first, last = is_bad(0), is_bad(steps - 1)
    if not first and not last:
        return None
    if first and last:
        return 0, steps - 1
    good, bad = (steps - 1, 0) if first else (0, steps - 1)
    while abs(good - bad) > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if is_bad(middle) else (middle, bad)
    return (0, bad) if first else (bad, steps - 1)
