"""One plan from bytes to a model."""

from __future__ import annotations

from sdm_runtime.format.plan_format import (
    KNOWN_FLAGS,
    PLAN_MAGIC,
    Backend,
    FieldRecord,
    PatchRecord,
    PlanHeader,
    RelocRecord,
)
from sdm_runtime.format.records import text
from sdm_runtime.inspect.reading.checks import check_name, check_seal, code, expect
from sdm_runtime.inspect.reading.decode_records import (
    decode_field,
    decode_operand,
    decode_patch,
    expect_once,
    read_records,
)
from sdm_runtime.inspect.reading.model import Field, PlanModel


def decode_plan(data: bytes, at: int = 0) -> PlanModel:
    """Read one plan whose first byte is byte ``at`` of its file. Raises FileError."""
    size = PlanHeader.SIZE
    expect(
        len(data) >= size, f"truncated: {len(data)} bytes, a header takes {size}", at + len(data)
    )
    header = PlanHeader.unpack(data)
    expect(header.magic == PLAN_MAGIC, "bad magic: this is not a plan", at)
    check_seal(PlanHeader, data, at)
    _check_header(header, at)
    params_at = _check_size(header, len(data), at)

    fields_at = size
    patches_at = fields_at + header.num_fields * FieldRecord.SIZE
    relocs_at = patches_at + header.num_patches * PatchRecord.SIZE
    block = data[params_at : params_at + header.param_bytes]
    fields = [
        decode_field(record, block, at + params_at, at + byte)
        for record, byte in read_records(FieldRecord, data, fields_at, header.num_fields)
    ]
    expect_once("record", [(field.name, field.record_at) for field in fields])
    _check_coverage(fields, data[params_at:], at + params_at)
    patches = [
        decode_patch(record, fields, at + byte)
        for record, byte in read_records(PatchRecord, data, patches_at, header.num_patches)
    ]
    operands = [
        decode_operand(record, fields, at + byte)
        for record, byte in read_records(RelocRecord, data, relocs_at, header.num_relocs)
    ]
    expect_once("patch", [(patch.field, patch.record_at) for patch in patches])
    expect_once("relocation", [(operand.field, operand.record_at) for operand in operands])
    return PlanModel(
        at=at,
        data=data,
        header=header,
        kernel=text(header.kernel),
        entry=text(header.entry),
        backend=Backend(header.backend),
        fields=tuple(fields),
        patches=tuple(patches),
        operands=tuple(operands),
    )


def _check_header(header: PlanHeader, at: int) -> None:
    byte = {name: at + span[0] for name, span in PlanHeader.SPANS.items()}
    expect(not any(header.reserved), "reserved bytes not zero", byte["reserved"])
    code(Backend, header.backend, "backend", byte["backend"])
    expect(not header.flags & ~KNOWN_FLAGS, f"unknown flags {header.flags:#x}", byte["flags"])
    check_name(header.kernel, "kernel name", byte["kernel"])
    check_name(header.entry, "entry name", byte["entry"], may_be_empty=True)


def _check_size(header: PlanHeader, given: int, at: int) -> int:
    """The tables and the parameter block fill the plan exactly; returns where the block starts."""
    tables = (
        PlanHeader.SIZE
        + header.num_fields * FieldRecord.SIZE
        + header.num_patches * PatchRecord.SIZE
        + header.num_relocs * RelocRecord.SIZE
    )
    expected = tables + (header.param_bytes + 7) // 8 * 8
    expect(
        expected == given,
        f"its tables and parameters take {expected} bytes, the header says {given}",
        at + PlanHeader.SPANS["num_fields"][0],
    )
    return tables


def _check_coverage(fields: list[Field], padded_block: bytes, block_at: int) -> None:
    """No byte of the parameter block belongs to two fields; one that belongs to none is zero."""
    covered = bytearray(len(padded_block))
    for field in fields:
        span = slice(field.offset, field.offset + field.size)
        expect(not any(covered[span]), f"field '{field.name}' overlaps another", field.record_at)
        covered[span] = b"\1" * field.size
    for i, used in enumerate(covered):
        expect(
            bool(used) or padded_block[i] == 0,
            "padding of the parameter block not zero",
            block_at + i,
        )
