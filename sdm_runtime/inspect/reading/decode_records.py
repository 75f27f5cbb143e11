"""The records of a plan from bytes to a model."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeVar

from sdm_runtime.format.plan_format import (
    FIELD_NULLABLE,
    Access,
    Dtype,
    FieldRecord,
    FieldType,
    PatchKind,
    PatchRecord,
    RelocRecord,
)
from sdm_runtime.format.records import Record, text
from sdm_runtime.inspect.reading.checks import check_name, code, expect
from sdm_runtime.inspect.reading.model import Field, Operand, Patch, Value

_NUMBER_FORMATS = {
    FieldType.INT8: "<b",
    FieldType.UINT8: "<B",
    FieldType.INT16: "<h",
    FieldType.UINT16: "<H",
    FieldType.INT32: "<i",
    FieldType.UINT32: "<I",
    FieldType.INT64: "<q",
    FieldType.UINT64: "<Q",
    FieldType.FLOAT32: "<f",
    FieldType.FLOAT64: "<d",
}
_PATCHED_TYPES = {
    PatchKind.INT32: FieldType.INT32,
    PatchKind.INT64: FieldType.INT64,
    PatchKind.POINTER: FieldType.POINTER,
}
_RecordT = TypeVar("_RecordT", bound=Record)


def read_records(
    kind: type[_RecordT], data: bytes, at: int, count: int
) -> Iterator[tuple[_RecordT, int]]:
    """``count`` records from byte ``at`` on, each with its byte."""
    for i in range(count):
        yield kind.unpack(data, at + i * kind.SIZE), at + i * kind.SIZE


def decode_field(record: FieldRecord, block: bytes, block_at: int, byte: int) -> Field:
    """A field and its value in the parameter block, which starts at byte ``block_at``."""
    check_name(record.name, "field name", byte)
    name = text(record.name)
    kind = code(FieldType, record.type, f"type of field '{name}'", byte)
    expect(
        not any(record.reserved) and not record.flags & ~FIELD_NULLABLE,
        f"field '{name}': reserved bytes not zero",
        byte,
    )
    expect(
        record.offset + record.size <= len(block),
        f"field '{name}' ends past the parameter block",
        byte,
    )
    raw = block[record.offset : record.offset + record.size]
    value_at = block_at + record.offset
    return Field(
        name=name,
        type=kind,
        offset=record.offset,
        size=record.size,
        nullable=bool(record.flags & FIELD_NULLABLE),
        value=_value(kind, raw, name, value_at, byte),
        record_at=byte,
        value_at=value_at,
    )


def _value(kind: FieldType, raw: bytes, name: str, value_at: int, record_at: int) -> Value:
    if kind is FieldType.BYTES:
        return raw
    if kind is FieldType.POINTER:
        expect(len(raw) == 8, f"field '{name}': a pointer of {len(raw)} bytes", record_at)
        expect(not any(raw), f"field '{name}' holds an address of another process", value_at)
        return None
    code = _NUMBER_FORMATS[kind]
    size = struct.calcsize(code)
    expect(len(raw) == size, f"field '{name}': {len(raw)} bytes, its type has {size}", record_at)
    value: int | float = struct.unpack(code, raw)[0]
    return value


def decode_patch(record: PatchRecord, fields: list[Field], byte: int) -> Patch:
    """What changes a field from step to step."""
    expect(record.field < len(fields), f"patch of field {record.field}: no such field", byte)
    field = fields[record.field]
    kind = code(PatchKind, record.kind, f"patch kind of '{field.name}'", byte)
    expect(
        _PATCHED_TYPES[kind] is field.type,
        f"patch of '{field.name}': kind {kind.name.lower()} does not fit its type",
        byte,
    )
    expect(not any(record.reserved), f"patch of '{field.name}': reserved bytes not zero", byte)
    expect(
        record.lowest <= record.highest,
        f"patch of '{field.name}': clamp {record.lowest}..{record.highest} is empty",
        byte,
    )
    numbers = (record.base, record.stride, record.lowest, record.highest)
    return Patch(field.name, kind, *numbers, record_at=byte)


def decode_operand(record: RelocRecord, fields: list[Field], byte: int) -> Operand:
    """The tensor behind a pointer field."""
    expect(record.field < len(fields), f"relocation of field {record.field}: no such field", byte)
    field = fields[record.field]
    expect(
        field.type is FieldType.POINTER,
        f"relocation of '{field.name}', which is not a pointer",
        byte,
    )
    check_name(record.operand, "operand name", byte + RelocRecord.SPANS["operand"][0])
    expect(record.reserved == 0, f"relocation of '{field.name}': reserved byte not zero", byte)
    expect(record.align_log2 <= 12, f"alignment 2^{record.align_log2}, the most is 2^12", byte)
    return Operand(
        name=text(record.operand),
        field=field.name,
        dtype=code(Dtype, record.dtype, f"dtype of '{field.name}'", byte),
        access=code(Access, record.access, f"access of '{field.name}'", byte),
        align=1 << record.align_log2,
        offset=record.offset,
        extent=record.extent,
        step_stride=record.step_stride,
        step_bytes=record.step_bytes,
        record_at=byte,
    )


def expect_once(what: str, fields: list[tuple[str, int]]) -> None:
    """Raise FileError when a field occurs twice."""
    seen: set[str] = set()
    for field, byte in fields:
        expect(field not in seen, f"field '{field}' has a second {what}", byte)
        seen.add(field)
