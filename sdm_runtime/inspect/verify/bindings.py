"""Checks against the tensors that a chain is bound to: where they are, and whether they are.

A file holds no addresses. ``sdm_runtime.inspect.bindings(chain)`` writes a live chain's down.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from sdm_runtime.inspect.model import Operand
from sdm_runtime.inspect.verify.findings import WARNING, Finding, Place
from sdm_runtime.inspect.verify.shape import WIDE
from sdm_runtime.plan_format import Backend
from sdm_runtime.plan_records import word


@dataclass(frozen=True)
class Binding:
    """A tensor: address and bytes, and the dtype by name if it is known."""

    address: int
    bytes: int
    dtype: str | None = None


def load_bindings(path: str | os.PathLike[str]) -> dict[str, Binding]:
    """Read ``{operand: {"address": int, "bytes": int, "dtype": str}}``.

    Raises:
        ValueError: The file holds something else.
        OSError: The file cannot be read.
    """
    try:
        entries = json.loads(Path(path).read_text())
        return {
            name: Binding(int(entry["address"]), int(entry["bytes"]), entry.get("dtype"))
            for name, entry in entries.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{os.fspath(path)}: not a bindings file: {error!r}") from None


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
    for a, b in combinations(place.plan.operands, 2):
        if a.name == b.name or not (a.writes or b.writes):
            continue
        if a.name not in bindings or b.name not in bindings:
            continue
        begin_a = bindings[a.name].address + a.offset
        begin_b = bindings[b.name].address + b.offset
        shared = min(begin_a + a.extent, begin_b + b.extent) - max(begin_a, begin_b)
        if shared > 0:
            message = (
                f"'{a.name}' and '{b.name}' share {shared} bytes of memory, which the launch writes"
            )
            yield place.error("overlap", message, subject=a.name, byte=b.record_at)
