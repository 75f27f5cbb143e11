"""What every byte of a file is: spans that cover it from the first byte to the last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from sdm_runtime.format.plan_format import (
    Access,
    Backend,
    ChainEntry,
    ChainHeader,
    Dtype,
    FieldRecord,
    FieldType,
    PatchKind,
    PatchRecord,
    PlanHeader,
    RelocRecord,
)
from sdm_runtime.format.records import Record, text, word
from sdm_runtime.inspect.reading.model import ChainModel, PlanModel
from sdm_runtime.inspect.reading.words import value_text

_CODES = {
    ("PlanHeader", "backend"): Backend,
    ("FieldRecord", "type"): FieldType,
    ("PatchRecord", "kind"): PatchKind,
    ("RelocRecord", "dtype"): Dtype,
    ("RelocRecord", "access"): Access,
}
_NAMES = {"kernel", "entry", "name", "operand"}
_HEX = {"magic", "checksum", "layout_hash", "flags"}


@dataclass(frozen=True)
class Span:
    """``size`` bytes from byte ``start`` on that say one thing."""

    start: int
    size: int
    group: str  # "header", "entries", "fields", "patches", "relocations", "parameters"
    plan: int | None  # index of the plan, None for the chain's own bytes
    record: str  # "plan header", "field 3 (step)", ..
    member: str  # "steps", "base", "padding", ..
    meaning: str

    @property
    def end(self) -> int:
        """The byte after the last."""
        return self.start + self.size


def file_spans(chain: ChainModel) -> list[Span]:
    """Every byte of the file, once, in order."""
    spans: list[Span] = []
    if chain.kind == "chain":
        spans += _record_spans(ChainHeader, chain.data, 0, "header", None, "chain header")
        for index in range(len(chain.plans)):
            at = ChainHeader.SIZE + index * ChainEntry.SIZE
            record = f"entry {index}"
            spans += _record_spans(ChainEntry, chain.data, at, "entries", None, record)
    for index, plan in enumerate(chain.plans):
        spans += _plan_spans(chain.data, plan, index)
    return spans


def _plan_spans(data: bytes, plan: PlanModel, index: int) -> Iterator[Span]:
    yield from _record_spans(PlanHeader, data, plan.at, "header", index, "plan header")
    for i, field in enumerate(plan.fields):
        record = f"field {i} ({field.name})"
        yield from _record_spans(FieldRecord, data, field.record_at, "fields", index, record)
    for i, patch in enumerate(plan.patches):
        record = f"patch {i} ({patch.field})"
        yield from _record_spans(PatchRecord, data, patch.record_at, "patches", index, record)
    for i, operand in enumerate(plan.operands):
        record = f"relocation {i} ({operand.name})"
        at = operand.record_at
        yield from _record_spans(RelocRecord, data, at, "relocations", index, record)
    yield from _param_spans(plan, index)


def _record_spans(
    kind: type[Record], data: bytes, at: int, group: str, plan: int | None, record: str
) -> Iterator[Span]:
    values = kind.unpack(data, at)
    for member in fields(kind):
        offset, size = kind.SPANS[member.name]
        meaning = _meaning(kind.__name__, member.name, getattr(values, member.name))
        yield Span(at + offset, size, group, plan, record, member.name, meaning)


def _meaning(record: str, member: str, value: object) -> str:
    codes = _CODES.get((record, member))
    if codes is not None and isinstance(value, int):
        return f"{value} = {word(codes(value))}"
    if isinstance(value, bytes):
        if member in _NAMES:
            return text(value) or "(empty)"
        return value.hex() if any(value) else "zeros"
    if isinstance(value, tuple):
        return " x ".join(map(str, value))
    if isinstance(value, int) and member in _HEX:
        return f"{value:#x}"
    if member == "align_log2" and isinstance(value, int):
        return f"{value} = aligned to {1 << value}"
    return str(value)


def _param_spans(plan: PlanModel, index: int) -> Iterator[Span]:
    """The values, and what lies between them."""
    at, end = plan.params_at, plan.at + len(plan.data)
    for field in sorted(plan.fields, key=lambda field: field.offset):
        if field.size == 0:
            continue
        if field.value_at > at:
            yield _padding(at, field.value_at, index)
        operand = plan.operand_of.get(field.name)
        meaning = f"-> {operand.name}" if operand else value_text(field.value)
        yield Span(
            field.value_at, field.size, "parameters", index, "parameters", field.name, meaning
        )
        at = field.value_at + field.size
    if at < end:
        yield _padding(at, end, index)


def _padding(start: int, end: int, index: int) -> Span:
    return Span(start, end - start, "parameters", index, "parameters", "padding", "zeros")
