"""Everything that can change the library's algorithm or its arithmetic, as one hashable key."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from sdm_runtime import _core
from sdm_runtime.plan.blas_step import blas_handle
from sdm_runtime.qualify.libraries import BlasPaths, KeyUnreadableError, blas_paths
from sdm_runtime.qualify.native_state import NativeBlas, State, open_native
from sdm_runtime.qualify.operand_shapes import Shape, Sizes
from sdm_runtime.qualify.settings import Environment, Values, torch_settings

Operands = tuple[Tensor, Tensor, Tensor]  # d_u, x, d_dv
Residues = tuple[int, int, int]  # of the addresses of d_u, x and d_dv, modulo ALIGNMENT
ALIGNMENT = 256  # bytes; the library asks for no more


class Key(NamedTuple):
    """Equal keys, equal arithmetic: a verdict holds for its key."""

    device: tuple[Any, ...]  # index, name, capability, SM count, UUID
    versions: tuple[Any, ...]  # of torch and CUDA, of the libraries; their files; our image's hash
    environment: tuple[tuple[str, str], ...]  # variables; the handle where they have changed
    shape: Shape
    residues: tuple[Residues, ...]
    settings: Values
    handle: State


class KeySource(Protocol):
    """What a key needs of the process; tests put a recorded one in its place."""

    def static(self, device: torch.device, handle: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """``Key.device`` and ``Key.versions``."""

    def environment(self, handle: int) -> tuple[tuple[str, str], ...]:
        """``Key.environment``."""

    def settings(self) -> Values:
        """``Key.settings``."""

    def other_library(self) -> str | None:
        """The library that torch's products come from in cuBLAS's place, or None."""

    def handle(self, device: torch.device) -> int:
        """torch's handle of this thread and device, set up as for a call of torch's own."""

    def handle_state(self, handle: int) -> State:
        """``Key.handle``; call it after ``static``."""


def read_key(source: KeySource, operands: Operands, shape: Shape) -> Key:
    """The key of a backward over these operands, now.

    Raises:
        KeyUnreadableError: Something about the libraries or the handle cannot be told.
    """
    device = operands[0].device
    handle = source.handle(device)
    device_facts, versions = source.static(device, handle)
    return Key(
        device_facts,
        versions,
        source.environment(handle),
        shape,
        step_residues(operands, shape.sizes),
        source.settings(),
        source.handle_state(handle),
    )


def step_residues(operands: Operands, sizes: Sizes) -> tuple[Residues, ...]:
    """The distinct residues of the steps' addresses, sorted: the alignment classes.

    A step begins P chunks behind the one before; the operands are contiguous.
    """
    d_u, x, d_dv = operands
    first = (
        d_u.data_ptr() % ALIGNMENT,
        x.data_ptr() % ALIGNMENT,
        d_dv.data_ptr() % ALIGNMENT,
    )
    sequences, chunk, head_dim = sizes
    rows = 4 * sequences * chunk * head_dim % ALIGNMENT
    square = 4 * sequences * chunk * chunk % ALIGNMENT
    if not (rows or square):
        return (first,)
    steps = min(d_u.shape[0] // sequences, ALIGNMENT // 4)  # residues repeat after these
    found = {
        (
            (first[0] + step * rows) % ALIGNMENT,
            (first[1] + step * square) % ALIGNMENT,
            (first[2] + step * rows) % ALIGNMENT,  # d_dv has d_u's chunks
        )
        for step in range(steps)
    }
    return tuple(sorted(found))


class ProcessSource:
    """This process: what stays is read once, what may change is read for every key."""

    def __init__(self) -> None:
        """Note the environment; nothing that touches CUDA."""
        self._environment = Environment()
        self._first, self._changed = self._environment.read(), False
        self._settings = torch_settings()
        self._devices: dict[int, tuple[Any, ...]] = {}
        self._blas: tuple[int, NativeBlas, tuple[Any, ...]] | None = None

    def environment(self, handle: int) -> tuple[tuple[str, str], ...]:
        """See KeySource.

        The libraries read the variables when they are loaded and when a handle is made. Once they
        have changed, nothing says which values a handle was made with: a verdict is its own.
        """
        now = self._environment.read()
        self._changed = self._changed or now != self._first
        return (*now, ("handle", str(handle))) if self._changed else now

    def settings(self) -> Values:
        """See KeySource."""
        return self._settings.read()

    def other_library(self) -> str | None:
        """See KeySource."""
        return self._settings.other_library()

    def handle(self, device: torch.device) -> int:
        """See KeySource."""
        # As torch.cuda's functions, which first ask whether CUDA is initialized: a backward waits.
        if device.index == torch._C._cuda_getDevice():
            return int(torch._C._cuda_getCurrentBlasHandle())
        return blas_handle(device)

    def static(self, device: torch.device, handle: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """See KeySource."""
        known = self._devices.get(device.index)
        if known is None:
            known = self._devices[device.index] = _device_facts(device)
        _, versions = self._libraries(handle)
        return known, versions

    def handle_state(self, handle: int) -> State:
        """See KeySource."""
        native, _ = self._libraries(handle)
        return native.state(handle)

    def _libraries(self, handle: int) -> tuple[NativeBlas, tuple[Any, ...]]:
        """The loaded libraries; looked for again whenever the process loads or unloads any."""
        changes = int(_core.library_changes())
        known = self._blas
        if known is None or known[0] != changes:
            paths = loaded_blas()
            native = open_native(paths)
            torch_versions = (torch.__version__, torch.version.cuda)
            versions = (*torch_versions, *paths, *native.versions(handle), image_hash())
            known = self._blas = (changes, native, versions)
        return known[1], known[2]


def loaded_blas() -> BlasPaths:
    """This process's libraries; raises KeyUnreadableError as blas_paths does."""
    return blas_paths(Path("/proc/self/maps").read_text(errors="surrogateescape"))


def _device_facts(device: torch.device) -> tuple[Any, ...]:
    facts = torch.cuda.get_device_properties(device)
    sms = facts.multi_processor_count
    return (device.index, facts.name, facts.major, facts.minor, sms, str(facts.uuid))


@lru_cache(maxsize=1)
def image_hash() -> str:
    """SHA-256 over gx_gemm's device images, which the core has checked against the build's table.

    Raises:
        KeyUnreadableError: There are none: this build runs no device code.
    """
    images = sorted((Path(_core.__file__).parent / "device").glob("gx_gemm*.fatbin"))
    if not images:
        raise KeyUnreadableError("gx_gemm: this build has no device image of it")
    digest = hashlib.sha256()
    for image in images:
        digest.update(image.read_bytes())
    return digest.hexdigest()
