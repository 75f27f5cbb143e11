"""Checks against the tensors that a chain is bound to: where they are, and whether they are.

A file holds no addresses. ``sdm_runtime.inspect.bindings(chain)`` writes a live chain's down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sdm_runtime.files.json_files import expect, member, read_json
from sdm_runtime.files.reading import Source, source_name
from sdm_runtime.format.plan_format import Backend
from sdm_runtime.format.records import word
from sdm_runtime.inspect.reading.model import Operand
from sdm_runtime.inspect.verify.findings import WARNING, Finding, Place
from sdm_runtime.inspect.verify.shape import WIDE
from sdm_runtime.inspect.verify.sweep import Span, shared_bytes


@dataclass(frozen=True)
class Binding:
    """A tensor: address and bytes, and the dtype by name if it is known."""

    address: int
    bytes: int
    dtype: str | None = None


def load_bindings(path: Source) -> dict[str, Binding]:
    """Read ``{operand: {"address": int, "bytes": int, "dtype": str}}``, from a file or a pipe.

    Raises:
        ValueError: The file holds something else; the message says what.
        OSError: The file cannot be read, as ``sdm_runtime.files.reading.read_file`` says.
    """
    try:
        entries = expect("bindings", read_json(path), dict)
        return {name: _binding(name, entry) for name, entry in entries.items()}
    except ValueError as error:
        raise ValueError(f"{source_name(path)}: not a bindings file: {error}") from None


def _binding(name: str, entry: Any) -> Binding:
    values = expect(name, entry, dict)
    try:
        address, size = member(values, "address", int), member(values, "bytes", int)
        dtype = None if values.get("dtype") is None else member(values, "dtype", str)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if not (0 <= address < 1 << 64 and 0 <= size <= (1 << 64) - address):
        raise ValueError(f"{name}: expected 64-bit addresses, got {size} bytes at {address}"[:200])
    return Binding(address, size, dtype)


def check_bindings(places: Sequence[Place], bindings: Mapping[str, Binding]) -> Iterator[Finding]:
    """Every operand is bound, fits, is aligned, and is apart from what is written."""
    for place in places:
        for operand in place.plan.operands:
            yield from _check_operand(place, operand, bindings.get(operand.name))
        yield from _check_apart(place, bindings)
    known = {operand.name for place in places for operand in place.plan.operands}
    for name in bindings.keys() - known:
        yield Finding(WARNING, "bindings", f"'{name}' is bound, but no plan names it", subject=name)


def _check_operand(place: Place, operand: Operand, bound: Binding | None) -> Iterator[Finding]:
    where = {"subject": operand.name, "byte": operand.record_at}
    if bound is None:
        yield place.error("unbound", f"operand '{operand.name}' is not bound", **where)
        return
    needed = operand.offset + operand.extent
    if bound.address == 0 and needed:
        message = f"operand '{operand.name}' is bound to null: its memory was freed"
        yield place.error("unbound", message, **where)
        return
    if bound.bytes != needed:
        message = f"'{operand.name}': expected {needed} bytes, bound to {bound.bytes}"
        yield place.error("bindings", message, **where)
    if bound.dtype is not None and bound.dtype.rstrip("fn") != word(operand.dtype).rstrip("fn"):
        message = f"'{operand.name}': expected {word(operand.dtype)}, bound to {bound.dtype}"
        yield place.error("bindings", message, **where)
    address = bound.address + operand.offset
    if address % operand.align:
        message = (
            f"'{operand.name}' is at an address with remainder {address % operand.align}, "
            f"recorded with an alignment of {operand.align}"
        )
        yield place.error("alignment", message, **where)
    elif place.plan.backend is Backend.CUDA and address % WIDE:
        message = (
            f"'{operand.name}' is at an address aligned to {address & -address} only: "
            f"a view into a larger tensor? {WIDE} allows wider loads"
        )
        yield place.warning("alignment", message, **where)


def _check_apart(place: Place, bindings: Mapping[str, Binding]) -> Iterator[Finding]:
    spans = []
    for operand in place.plan.operands:
        bound = bindings.get(operand.name)
        if bound is not None:
            begin = bound.address + operand.offset
            spans.append(Span(begin, begin + operand.extent, operand))
    for a, b in shared_bytes(spans, of_one_operand=False):
        shared = min(a.end, b.end) - max(a.begin, b.begin)
        message = (
            f"'{a.operand.name}' and '{b.operand.name}' share {shared} bytes of memory, which the "
            "launch writes"
        )
        yield place.error("overlap", message, subject=a.operand.name, byte=b.operand.record_at)
