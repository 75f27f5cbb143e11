"""Plans and chains as data: what a file says, with the byte at which it says it.

Imports neither torch nor the extension: the file carries its field table.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sdm_runtime.errors import PlanError
from sdm_runtime.format.plan_format import (
    FLAG_LIBRARY,
    FLAG_PROGRAMMATIC,
    Access,
    Backend,
    Dtype,
    FieldType,
    PatchKind,
    PlanHeader,
    StepOrder,
)

Value = int | float | bytes | None  # None: a pointer, which a file never holds

STEP_FIELD = "step"  # the field that says which step's share of an operand is touched


class FileError(PlanError):
    """A file that is not a plan or chain; ``byte`` is where that shows, from the file's start."""

    def __init__(self, reason: str, byte: int):
        """``reason`` without the byte, which the message adds."""
        super().__init__(f"{reason} (byte {byte})")
        self.reason = reason
        self.byte = byte


@dataclass(frozen=True)
class Field:
    """A member of the parameter block: ``offset`` and ``size`` in bytes within the block."""

    name: str
    type: FieldType
    offset: int
    size: int
    nullable: bool
    value: Value
    record_at: int  # the byte of its record in the file
    value_at: int  # the byte of its value in the file


@dataclass(frozen=True)
class Patch:
    """``value(ti) = clamp(base + ti * stride, lowest, highest)``, written before step ti."""

    field: str
    kind: PatchKind
    base: int
    stride: int
    lowest: int
    highest: int
    record_at: int

    def value(self, ti: int) -> int:
        """What the field holds (a pointer: the bytes added to its address) in step ``ti``."""
        return min(max(self.base + ti * self.stride, self.lowest), self.highest)

    def formula(self, steps: int) -> str:
        """The formula as short as it is true for the steps ``0..steps-1``."""
        parts = [] if self.base == 0 else [str(self.base)]
        if self.stride:
            parts.append("ti" if self.stride == 1 else f"{self.stride}*ti")
        line = " + ".join(parts).replace("+ -", "- ") or "0"
        ends = (self.base, self.base + (steps - 1) * self.stride)
        if self.lowest <= min(ends) and max(ends) <= self.highest:
            return line
        return f"clamp({line}, {self.lowest}, {self.highest})"


@dataclass(frozen=True)
class Region:
    """Bytes ``start..end`` of an operand, from the operand's start."""

    start: int
    end: int
    exact: bool  # False: some part of them, the plan does not say which

    @property
    def bytes(self) -> int:
        """The length."""
        return self.end - self.start


@dataclass(frozen=True)
class Operand:
    """A pointer field and the tensor behind it; offsets, extents and strides in bytes."""

    name: str
    field: str
    dtype: Dtype
    access: Access
    align: int
    offset: int
    extent: int
    step_stride: int
    step_bytes: int
    record_at: int

    @property
    def reads(self) -> bool:
        """Whether the launch reads it."""
        return bool(self.access & Access.READ)

    @property
    def writes(self) -> bool:
        """Whether the launch writes it."""
        return bool(self.access & Access.WRITE)

    @property
    def shared_out(self) -> bool:
        """Whether each step has a share of its own."""
        return self.step_bytes > 0


@dataclass(frozen=True)
class PlanModel:
    """One plan; ``at`` is its first byte in the file."""

    at: int
    data: bytes
    header: PlanHeader
    kernel: str
    entry: str
    backend: Backend
    fields: tuple[Field, ...]
    patches: tuple[Patch, ...]
    operands: tuple[Operand, ...]

    @property
    def steps(self) -> int:
        """How many steps the plan covers."""
        return self.header.steps

    @property
    def programmatic(self) -> bool:
        """Whether it may start before the launch ahead of it has finished (PDL)."""
        return bool(self.header.flags & FLAG_PROGRAMMATIC)

    @property
    def library(self) -> bool:
        """Whether it is a library call, not a kernel of ours."""
        return bool(self.header.flags & FLAG_LIBRARY)

    @property
    def empty(self) -> bool:
        """Whether its grid is empty: nothing is launched."""
        return 0 in self.header.grid

    @property
    def params_at(self) -> int:
        """The byte at which the parameter block starts in the file."""
        return self.at + len(self.data) - (self.header.param_bytes + 7) // 8 * 8

    @cached_property
    def patch_of(self) -> dict[str, Patch]:
        """Patches by field name."""
        return {patch.field: patch for patch in self.patches}

    @cached_property
    def operand_of(self) -> dict[str, Operand]:
        """Operands by the name of the field that points to them."""
        return {operand.field: operand for operand in self.operands}

    @cached_property
    def _fields_by_name(self) -> dict[str, Field]:
        return {field.name: field for field in self.fields}

    def field(self, name: str) -> Field | None:
        """The field of that name."""
        return self._fields_by_name.get(name)

    def number(self, name: str) -> int:
        """An integer field by name; 0 where the kernel has none."""
        field = self.field(name)
        return field.value if field and isinstance(field.value, int) else 0

    def step_counted(self, ti: int) -> int:
        """The step whose share of the operands the launch of step ``ti`` touches."""
        if STEP_FIELD in self.patch_of:
            return self.patch_of[STEP_FIELD].value(ti)
        field = self.field(STEP_FIELD)
        return field.value if field and isinstance(field.value, int) else ti

    def region(self, operand: Operand, ti: int) -> Region:
        """What the launch of step ``ti`` touches of an operand."""
        start = operand.offset
        moved = self.patch_of.get(operand.field)
        if moved:
            start += moved.value(ti)
        if not operand.shared_out:
            return Region(start, operand.offset + operand.extent, exact=False)
        if not moved:
            start += self.step_counted(ti) * operand.step_stride
        return Region(start, start + operand.step_bytes, exact=True)


@dataclass(frozen=True)
class ChainModel:
    """A file: a chain, or one plan taken as a chain of itself."""

    kind: str  # "chain" or "plan"
    data: bytes
    steps: int
    plans: tuple[PlanModel, ...]
    order: StepOrder = StepOrder.DESCENDING

    @property
    def run_order(self) -> range:
        """The steps as a run takes them."""
        if self.order is StepOrder.ASCENDING:
            return range(self.steps)
        return range(self.steps - 1, -1, -1)

    @property
    def run_text(self) -> str:
        """``511 .. 0``: the first step of a run and the last."""
        return f"{self.run_order[0]} .. {self.run_order[-1]}"

    @property
    def launches(self) -> int:
        """Launches of one run: an empty grid is not launched."""
        return self.steps * sum(not plan.empty for plan in self.plans)

    @property
    def backend(self) -> Backend:
        """The backend of its plans."""
        return self.plans[0].backend
