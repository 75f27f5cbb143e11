"""Models as plain data: what ``--json`` prints."""

from __future__ import annotations

from typing import Any

from sdm_runtime.format.records import word
from sdm_runtime.inspect.reading.model import ChainModel, Field, Operand, Patch, PlanModel
from sdm_runtime.inspect.reading.traffic import step_traffic
from sdm_runtime.inspect.reading.words import json_value, type_text, uuid_text

Data = dict[str, Any]


def field_data(field: Field) -> Data:
    """A member of the parameter block."""
    return {
        "name": field.name,
        "type": type_text(field),
        "offset": field.offset,
        "size": field.size,
        "nullable": field.nullable,
        "value": json_value(field.value),
    }


def patch_data(patch: Patch, steps: int) -> Data:
    """What changes a field over ``steps`` steps."""
    return {
        "field": patch.field,
        "kind": word(patch.kind),
        "base": patch.base,
        "stride": patch.stride,
        "lowest": patch.lowest,
        "highest": patch.highest,
        "formula": patch.formula(steps),
        "first": patch.value(0),
        "last": patch.value(steps - 1),
    }


def operand_data(operand: Operand) -> Data:
    """The tensor behind a pointer."""
    return {
        "name": operand.name,
        "field": operand.field,
        "dtype": word(operand.dtype),
        "access": word(operand.access),
        "align": operand.align,
        "offset": operand.offset,
        "extent": operand.extent,
        "step_stride": operand.step_stride,
        "step_bytes": operand.step_bytes,
    }


def identity_data(plan: PlanModel) -> Data:
    """Where a plan can run."""
    header = plan.header
    return {
        "backend": word(plan.backend),
        "device_uuid": uuid_text(header.device_uuid) if any(header.device_uuid) else None,
        "capability": [header.capability_major, header.capability_minor],
        "image_sha256": header.image_hash.hex() if any(header.image_hash) else None,
        "layout_hash": f"{header.layout_hash:#018x}",
    }


def geometry_data(plan: PlanModel) -> Data:
    """How a plan is launched."""
    header = plan.header
    return {
        "grid": list(header.grid),
        "block": list(header.block),
        "cluster": list(header.cluster),
        "shared_bytes": header.shared_bytes,
        "programmatic": plan.programmatic,
        "library": plan.library,
    }


def plan_data(plan: PlanModel) -> Data:
    """All of a plan."""
    return {
        "kernel": plan.kernel,
        "entry": plan.entry or None,
        "steps": plan.steps,
        "byte": plan.at,
        "bytes": len(plan.data),
        **identity_data(plan),
        **geometry_data(plan),
        "fields": [field_data(field) for field in plan.fields],
        "patches": [patch_data(patch, plan.steps) for patch in plan.patches],
        "operands": [operand_data(operand) for operand in plan.operands],
    }


def chain_data(chain: ChainModel) -> Data:
    """All of a file."""
    return {
        "kind": chain.kind,
        "bytes": len(chain.data),
        "steps": chain.steps,
        "order": word(chain.order),
        "launches": chain.launches,
        "step_traffic": step_traffic(chain).as_data(),
        "plans": [plan_data(plan) for plan in chain.plans],
    }
