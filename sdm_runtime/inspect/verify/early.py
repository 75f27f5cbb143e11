"""May a launch start early? Not where the launch ahead of it writes what it loads before it waits.

The executor then makes it an ordinary launch (csrc/plancap/run/early_starts.h makes the same check
of addresses), so this costs time, but changes no result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from sdm_runtime.format.plan_format import StepOrder
from sdm_runtime.inspect.reading.model import STEP_FIELD, ChainModel, Operand, PlanModel
from sdm_runtime.inspect.verify.bindings import Binding
from sdm_runtime.inspect.verify.findings import Finding, Place

# By kernel, the pointer fields that it loads from before its wait: the core's KernelInfo::early.
EARLY_FIELDS = {
    "bf16_linear": {"weight"},
    "bf16_linear_group": {f"weight_{i}" for i in range(8)},
    "fx_read": {"row_weights", "v"},
    "fx_write": {"bpre", "updates"},
    "gx_gds": {"records"},
    "gx_gemm": {"d_u", "x"},
    "gx_gwr": {"delta", "pd", "slots"},
    "gx_pa2": {"bpre", "records", "scales", "snap"},
    "merge_readings": {"norm_bias", "norm_weight"},
    "token_gates": {"a_log", "dt_bias"},
    "slot_select": {"key_positions", "query_positions"},
}


class _Touch(NamedTuple):
    """What launches touch of an operand: in step ti ``size`` bytes from ``start + ti * stride``."""

    start: int
    stride: int
    size: int


def check_early_starts(
    places: Sequence[Place], chain: ChainModel, bindings: Mapping[str, Binding] | None
) -> Iterator[Finding]:
    """Programmatic launches that must wait for the launch ahead of them all the same."""
    for place, loaded, ahead, written in _waits(places, chain, bindings):
        yield _finding(place, loaded, ahead, written)


def held_back(chain: ChainModel) -> frozenset[int]:
    """The plans whose launches are not early though they ask for it, by the operands' names."""
    places = [Place(index, plan) for index, plan in enumerate(chain.plans)]
    return frozenset(place.index for place, *_ in _waits(places, chain, None))


def _waits(
    places: Sequence[Place], chain: ChainModel, bindings: Mapping[str, Binding] | None
) -> Iterator[tuple[Place, Operand, Place, Operand]]:
    """A plan, what it loads early, the plan ahead of it, and what that one writes there."""
    launched = [place for place in places if not place.plan.empty]
    for index, place in enumerate(launched):
        ahead, lag = launched[index - 1], 0
        if index == 0:  # the last launch of the step that runs before
            lag = -1 if chain.order is StepOrder.ASCENDING else 1
        if not place.plan.programmatic or ahead.plan.library:
            continue
        early = EARLY_FIELDS.get(place.plan.kernel, set())
        for loaded in (o for o in place.plan.operands if o.field in early):
            for written in (o for o in ahead.plan.operands if o.writes):
                if _meet(place.plan, loaded, ahead.plan, written, lag, chain.steps, bindings):
                    yield place, loaded, ahead, written


def _finding(place: Place, loaded: Operand, ahead: Place, written: Operand) -> Finding:
    where = f"'{written.name}'" + (
        "" if written.name == loaded.name else ", which shares its bytes"
    )
    message = (
        f"'{loaded.name}' is loaded before the wait, and the launch ahead, plan {ahead.index} "
        f"({ahead.plan.kernel}), writes {where}: it is launched without PDL, and nothing overlaps "
        "there"
    )
    return place.warning("pdl", message, subject=loaded.name, byte=loaded.record_at)


def _meet(
    plan: PlanModel,
    loaded: Operand,
    ahead: PlanModel,
    written: Operand,
    lag: int,
    steps: int,
    bindings: Mapping[str, Binding] | None,
) -> bool:
    """Whether in some step ti a byte is loaded that is written in step ``ti + lag``."""
    bound = bindings or {}
    if loaded.name in bound and written.name in bound:
        loaded_at, written_at = bound[loaded.name].address, bound[written.name].address
    elif loaded.name == written.name:
        loaded_at = written_at = 0
    else:
        return False
    a, b = _touch(plan, loaded, loaded_at), _touch(ahead, written, written_at)
    first, last = max(0, -lag), steps - 1 - max(0, lag)
    if first > last or a.size == 0 or b.size == 0:
        return False
    slope = b.stride - a.stride
    at_zero = b.start + b.stride * lag - a.start
    if slope < 0:  # the steps counted from the other end
        at_zero, slope = at_zero + slope * (first + last), -slope
    least, most = 1 - b.size, a.size - 1
    if slope == 0:
        return least <= at_zero <= most
    ti = max(first, -((at_zero - least) // slope))
    return ti <= last and at_zero + slope * ti <= most


def _touch(plan: PlanModel, operand: Operand, address: int) -> _Touch:
    start = address + operand.offset
    step = plan.patch_of.get(STEP_FIELD)
    follows = step is not None and step.formula(plan.steps) == "ti"
    if follows and operand.shared_out and operand.field not in plan.patch_of:
        return _Touch(start, operand.step_stride, operand.step_bytes)
    return _Touch(start, 0, operand.extent)
