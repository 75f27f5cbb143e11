"""How numbers and names are written, on the terminal and in the report."""

from __future__ import annotations

import math

from sdm_runtime.format.plan_format import Dtype, FieldType
from sdm_runtime.format.records import word
from sdm_runtime.inspect.reading.model import Field, Operand, Patch, PlanModel, Value

DTYPE_BYTES = {
    Dtype.FLOAT32: 4,
    Dtype.BFLOAT16: 2,
    Dtype.INT32: 4,
    Dtype.UINT8: 1,
    Dtype.INT64: 8,
    Dtype.FLOAT8E4M3: 1,
    Dtype.FLOAT64: 8,
    Dtype.FLOAT16: 2,
}

# Opaque bytes up to here are always written out.
_SHORT_BYTES = 16


def plural(count: int, thing: str) -> str:
    """``1 plan``, ``2 plans``, ``3 launches``."""
    ending = "" if count == 1 else "es" if thing.endswith("ch") else "s"
    return f"{count} {thing}{ending}"


def size(count: int) -> str:
    """Bytes for people: ``512 B``, ``1.5 KiB``."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            return f"{count} B" if unit == "B" else f"{value:.4g} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def value_text(value: Value) -> str:
    """A field's value: numbers as they are, opaque bytes in hex, a pointer as null."""
    if value is None:
        return "null"
    if isinstance(value, bytes):
        if len(value) > _SHORT_BYTES and not any(value):
            return "zeros"
        return value.hex(" ") or "(no bytes)"
    return repr(value)


def json_value(value: Value) -> int | float | str | None:
    """A value that JSON has: bytes as hex, numbers that are not finite as text."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value


def type_text(field: Field) -> str:
    """``int32``, ``pointer``, ``12 bytes``."""
    return f"{field.size} bytes" if field.type is FieldType.BYTES else word(field.type)


def dims(three: tuple[int, int, int]) -> str:
    """``132 x 2``: a geometry without trailing ones."""
    shown = list(three)
    while len(shown) > 1 and shown[-1] == 1:
        shown.pop()
    return " x ".join(map(str, shown))


def pointer_text(operand: Operand) -> str:
    """``d_u + 16, 4096 bytes, read/write``: what a pointer field points at."""
    offset = f" + {operand.offset}" if operand.offset else ""
    return f"{operand.name}{offset}, {operand.extent} bytes, {word(operand.access)}"


def share_text(operand: Operand) -> str:
    """``512 bytes at 512*ti``: what one step touches of an operand."""
    if not operand.shared_out:
        return "anywhere"
    return f"{operand.step_bytes} bytes at {operand.step_stride}*ti"


def patch_text(patch: Patch, steps: int) -> str:
    """``ti: 0 .. 511``: a patch as its formula with its first and last value."""
    return f"{patch.formula(steps)}: {patch.value(0)} .. {patch.value(steps - 1)}"


def device_text(plan: PlanModel) -> str:
    """``host``, or the compute capability and UUID of the plan's device."""
    header = plan.header
    if not any(header.device_uuid):
        return "host"
    capability = f"{header.capability_major}.{header.capability_minor}"
    return f"cuda {capability} {uuid_text(header.device_uuid)}"


def uuid_text(uuid: bytes) -> str:
    """``GPU-01234567-89ab-...``, as the driver's tools write it."""
    h = uuid.hex()
    return f"GPU-{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"
