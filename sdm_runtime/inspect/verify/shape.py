"""Checks of one plan's own numbers: geometry, backend, null pointers, alignment."""

from __future__ import annotations

from collections.abc import Iterator

from sdm_runtime.format.plan_format import Backend, FieldType, PlanHeader
from sdm_runtime.format.records import word
from sdm_runtime.inspect.reading.model import Operand, PlanModel
from sdm_runtime.inspect.reading.words import DTYPE_BYTES, dims
from sdm_runtime.inspect.verify.findings import Finding, Place

_MOST_GRID = (0x7FFFFFFF, 65535, 65535)
_MOST_THREADS = 1024
_MOST_CLUSTER = 16
WIDE = 16  # bytes of the widest load
_SLICE_COLUMNS = 128  # a row dot leaves a plane of floats for so many columns of the row


def check_geometry(place: Place) -> Iterator[Finding]:
    """Grid, block and cluster are what a device can launch."""
    header = place.plan.header
    threads = header.block[0] * header.block[1] * header.block[2]
    if not 1 <= threads <= _MOST_THREADS:
        message = f"block {dims(header.block)} has {threads} threads, expected 1..{_MOST_THREADS}"
        yield place.error("geometry", message, byte=_byte(place, "block"))
    for axis, (grid, cluster) in enumerate(zip(header.grid, header.cluster, strict=True)):
        if grid > _MOST_GRID[axis]:
            message = f"grid[{axis}] is {grid}, the most is {_MOST_GRID[axis]}"
            yield place.error("geometry", message, byte=_byte(place, "grid"))
        if not 1 <= cluster <= _MOST_CLUSTER or grid % max(cluster, 1):
            message = (
                f"cluster {dims(header.cluster)} does not divide grid {dims(header.grid)} "
                f"(1..{_MOST_CLUSTER} an axis)"
            )
            yield place.error("geometry", message, byte=_byte(place, "cluster"))
            return


def check_host(place: Place) -> Iterator[Finding]:
    """A host plan names no device, image or launch feature."""
    plan, header = place.plan, place.plan.header
    if plan.backend is not Backend.HOST:
        return
    named = {
        "an image": any(header.image_hash),
        "a device": any(header.device_uuid) or header.capability_major > 0,
        "an entry": bool(plan.entry),
        "launch flags": header.flags != 0,
        "shared memory": header.shared_bytes != 0,
        "a grid of blocks": max(*header.grid, *header.block, *header.cluster) > 1,
    }
    for what in (name for name, given in named.items() if given):
        yield place.error("host", f"a host plan that names {what}")


def check_pointers(place: Place) -> Iterator[Finding]:
    """Every pointer that the kernel needs has an operand."""
    bound = {operand.field for operand in place.plan.operands}
    for field in place.plan.fields:
        if field.type is FieldType.POINTER and not field.nullable and field.name not in bound:
            message = f"pointer '{field.name}' has no operand: the kernel would get null"
            yield place.error("unbound", message, subject=field.name, byte=field.record_at)


def check_alignment(place: Place) -> Iterator[Finding]:
    """Addresses are aligned as their elements need, and as wide as rows allow."""
    plan = place.plan
    for operand in plan.operands:
        natural = DTYPE_BYTES[operand.dtype]
        where = {"subject": operand.name, "byte": operand.record_at}
        if operand.align < natural:
            message = (
                f"operand '{operand.name}' is aligned to {operand.align}, "
                f"its {word(operand.dtype)} elements take {natural} bytes"
            )
            yield place.error("alignment", message, **where)
        elif plan.backend is Backend.CUDA and operand.align < WIDE and _allows_wide(plan, operand):
            message = (
                f"operand '{operand.name}' was recorded with an alignment of {operand.align}: "
                f"its rows allow loads of {WIDE} bytes, an address that is a multiple of {WIDE} "
                "would get them"
            )
            yield place.warning("alignment", message, **where)


def _allows_wide(plan: PlanModel, operand: Operand) -> bool:
    """Whether the operand is rows of ``hd`` columns that can be loaded 16 bytes at a time."""
    columns, stride = plan.number("hd"), plan.number("plane_stride")
    pitch = columns * DTYPE_BYTES[operand.dtype]
    if not pitch or plan.library:
        return False
    if operand.shared_out:
        tokens = plan.number("num_parallel") * plan.number("chunk_size")
        rows = tokens > 0 and operand.step_bytes % (tokens * pitch) == 0
    else:
        slices = 1 + (columns - 1) // _SLICE_COLUMNS
        planes = operand.extent == slices * stride * DTYPE_BYTES[operand.dtype]
        rows = operand.extent % pitch == 0 and not planes
    numbers = (pitch, operand.offset, operand.extent, operand.step_stride)
    return rows and all(number % WIDE == 0 for number in numbers)


def _byte(place: Place, member: str) -> int:
    return place.plan.at + PlanHeader.SPANS[member][0]
