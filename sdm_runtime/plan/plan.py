"""Plans: one recorded kernel launch each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from sdm_runtime import _core
from sdm_runtime.errors import PlanError
from sdm_runtime.files.writing import write_file
from sdm_runtime.format.plan_files import read_plan_file, starts_with
from sdm_runtime.format.plan_format import CHAIN_MAGIC, Access, FieldType, PatchKind
from sdm_runtime.format.records import word
from sdm_runtime.plan.unread import check_unread, without_unread
from sdm_runtime.tensor.refs import tensor_ref


@dataclass(frozen=True)
class Field:
    """A member of a kernel's parameter block: byte ``offset`` and ``size`` in the block."""

    name: str
    type: str
    offset: int
    size: int


@dataclass(frozen=True)
class Patch:
    """How a field follows the step: ``clamp(base + ti * stride, lowest, highest)``."""

    field: str
    kind: str
    base: int
    stride: int
    lowest: int
    highest: int


@dataclass(frozen=True)
class Operand:
    """A tensor that a plan is bound to; offsets, extents and strides in bytes."""

    name: str
    field: str
    access: str
    align: int
    offset: int
    extent: int
    step_stride: int
    step_bytes: int


def moved_operand(where: str, name: str) -> PlanError:
    """The error of an operand that is not where it was bound."""
    return PlanError(
        f"[{where}] {name}: expected the memory that it was bound with, got a tensor whose memory "
        "was replaced or resized since: bind again"
    )


class Plan:
    """One recorded launch, as bytes, with or without the tensors it runs on.

    Made by ``sdm_runtime.kernels.plan_*``, :meth:`from_tensor` or :meth:`load`. A bound plan keeps
    its operands alive.
    """

    def __init__(
        self,
        core: _core.Plan,
        bound: _core.BoundPlan | None = None,
        operands: Mapping[str, torch.Tensor] | None = None,
    ):
        """Wrap a decoded core plan; users call the constructors named above."""
        self._core = core
        self._bound = bound
        self._tensors: dict[str, torch.Tensor] = dict(operands or {})
        self._addresses = [(t, t.data_ptr(), name) for name, t in self._tensors.items()]

    @cached_property
    def _header(self) -> _core._PlanHeader:
        """The header by name; a plan that only runs is never asked."""
        return self._core.header()

    @classmethod
    def _recorded(cls, bound: _core.BoundPlan, operands: Mapping[str, torch.Tensor]) -> Plan:
        return cls(bound.plan(), bound, operands)

    @classmethod
    def _of_bound(cls, bound: _core.BoundPlan, operands: Mapping[str, torch.Tensor]) -> Plan:
        """The core's bound plan, given operands that may be more than its own."""
        core = bound.plan()
        return cls(core, bound, {name: operands[name] for name, *_ in core.relocs()})

    @property
    def tensor(self) -> torch.Tensor:
        """The plan's bytes: a new uint8 CPU tensor ``[bytes]``."""
        return torch.frombuffer(bytearray(self._core.bytes()), dtype=torch.uint8)

    @classmethod
    def from_tensor(cls, tensor: torch.Tensor) -> Plan:
        """Decode and check a plan's bytes, a contiguous uint8 CPU tensor ``[bytes]``.

        The plan is unbound. Raises:
            TypeError: ``tensor`` is not a contiguous 1-D uint8 CPU tensor.
            PlanError: The bytes are not a plan that this build can run; the message says where.
        """
        fits = isinstance(tensor, torch.Tensor) and (
            tensor.dtype == torch.uint8 and tensor.dim() == 1 and tensor.device.type == "cpu"
        )
        if not fits or not tensor.is_contiguous():
            given = (
                f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}"
                if isinstance(tensor, torch.Tensor)
                else type(tensor).__name__
            )
            raise TypeError(f"[plan] tensor: expected contiguous uint8 [bytes] on cpu, got {given}")
        return cls(_core.Plan.decode(tensor.detach().numpy()))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan's bytes to ``path``. Operands are not written, only their names.

        The file is replaced in one piece or not at all. Raises OSError when it cannot be written.
        """
        write_file(path, self._core.bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan written by :meth:`save`, by this or another process; it is unbound.

        Raises:
            OSError: The file cannot be read (FileNotFoundError: is not there), or is neither a
                regular file nor a pipe that somebody writes to.
            PlanError: The file is not a plan that this build can run, or is a chain.
        """
        data = read_plan_file(os.fspath(path))
        if starts_with(data, CHAIN_MAGIC):
            raise PlanError("plan: this is a chain: StepChain.load reads it (byte 0)")
        return cls(_core.Plan.decode(data))

    def bind(self, **operands: torch.Tensor) -> Plan:
        """A plan of the same launch that runs on ``operands``, given by operand name.

        A plan of gx_pa2 also takes the launcher's ``kpay``, which no launch reads: its form is
        checked, and it is not kept.

        Raises:
            PlanError: An operand is missing, unknown, of another dtype, size, alignment or device
                than recorded, or shares memory with one that is written.
        """
        kept = without_unread(self.kernel, operands)
        refs = [
            (name, tensor_ref(f"[{self.kernel}] bind {name}", tensor))
            for name, tensor in kept.items()
        ]
        bound = self._core.bind(refs)
        check_unread(self.kernel, operands)
        return Plan(self._core, bound, kept)

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """The tensors that the plan is bound to and keeps alive, by operand name."""
        return self._tensors

    def _written(self) -> list[torch.Tensor]:
        """The tensors that a launch writes."""
        writes = {name for name, _, _, access, *_ in self._core.relocs() if access & Access.WRITE}
        return [self._tensors[name] for name in sorted(writes)]

    @property
    def bound(self) -> bool:
        """Whether the plan has its tensors and can run."""
        return self._bound is not None

    def require_bound(self) -> _core.BoundPlan:
        """The core's bound plan. Raises PlanError when the plan is not bound."""
        if self._bound is None:
            names = ", ".join(operand.name for operand in self.operands)
            raise PlanError(
                f"[{self.kernel}] plan: expected a bound plan: call bind({names}) first"
            )
        return self._bound

    def require_unmoved(self) -> None:
        """Check that every operand is still where it was bound.

        A plan keeps its tensors alive, but ``resize_``, ``set_`` or an assignment to ``.data`` can
        give a tensor other memory: the recorded address would then dangle.

        Raises:
            PlanError: An operand's memory was replaced or resized.
        """
        for tensor, address, name in self._addresses:
            if tensor.data_ptr() != address:
                raise moved_operand(self.kernel, name)

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return str(self._header["kernel"])

    @property
    def backend(self) -> str:
        """``"host"`` or ``"cuda"``."""
        return str(self._header["backend"])

    @property
    def library(self) -> bool:
        """Whether the plan is a call into a library, not a kernel of this project."""
        return bool(self._core.library())

    @property
    def steps(self) -> int:
        """How many steps the plan covers: it runs for ti in 0..steps-1."""
        return int(self._header["steps"])

    @property
    def geometry(self) -> dict[str, Any]:
        """Entry point, grid, block, cluster, dynamic shared memory (bytes), programmatic or not."""
        header = self._header
        return {
            "entry": header["entry"],
            "grid": header["grid"],
            "block": header["block"],
            "cluster": header["cluster"],
            "shared_bytes": header["shared_bytes"],
            "programmatic": header["programmatic"],
        }

    @property
    def fields(self) -> tuple[Field, ...]:
        """The kernel's parameter block, field by field."""
        return tuple(
            Field(name, word(FieldType(kind)), offset, size)
            for name, kind, offset, size in self._core.fields()
        )

    @property
    def patches(self) -> tuple[Patch, ...]:
        """What changes from step to step."""
        fields = self.fields
        return tuple(
            Patch(fields[field].name, word(PatchKind(kind)), *numbers)
            for field, kind, *numbers in self._core.patches()
        )

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The tensors that the plan needs."""
        fields = self.fields
        return tuple(
            Operand(name, fields[field].name, word(Access(access)), *numbers)
            for name, field, _dtype, access, *numbers in self._core.relocs()
        )

    def __repr__(self) -> str:
        """Kernel, backend, steps and whether it is bound."""
        state = "bound" if self.bound else "unbound"
        return f"Plan({self.kernel}, {self.backend}, {self.steps} steps, {state})"
