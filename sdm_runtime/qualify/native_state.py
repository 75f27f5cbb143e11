"""What the loaded library itself says: its version, and the state of torch's handle.

The calls keep the interpreter lock: they return at once, and giving the lock away could cost a
switch interval each. The handle's getters are called by the core, all at once: a backward waits.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

from sdm_runtime import _core
from sdm_runtime.qualify.libraries import BlasPaths, KeyUnreadableError

ABSENT = "absent"
UNSUPPORTED = "unsupported"  # by this device, says a getter: an answer, not a failure
_NOT_SUPPORTED = 15  # CUBLAS_STATUS_NOT_SUPPORTED

# Of a handle: cublasStatus_t name(cublasHandle_t, int* value). Later releases add, none takes away.
GETTERS = (
    "cublasGetMathMode",
    "cublasGetAtomicsMode",
    "cublasGetPointerMode_v2",
    "cublasGetSmCountTarget",
    "cublasGetEmulationStrategy",
    "cublasGetEmulationSpecialValuesSupport",
    "cublasGetFixedPointEmulationMantissaControl",
    "cublasGetFixedPointEmulationMaxMantissaBitCount",
    "cublasGetFixedPointEmulationMantissaBitOffset",
)

State = tuple[int | str, ...]


class NativeBlas:
    """Reads versions and handle state through functions that ``find`` looks up.

    Args:
        find_blas: A ctypes function of cuBLAS by its name, or None where this release lacks it;
            called with a handle and a reference to an int, it returns the library's status.
        find_lt: A function of cuBLASLt, without arguments.
    """

    def __init__(
        self,
        find_blas: Callable[[str], Any],
        find_lt: Callable[[str], Callable[..., int] | None],
    ):
        """Look every getter up, once."""
        self._getters = {name: find_blas(name) for name in GETTERS}
        present = [getter for getter in self._getters.values() if getter is not None]
        self._addresses = [ctypes.cast(getter, ctypes.c_void_p).value or 0 for getter in present]
        self._states: dict[tuple[int, ...], State] = {}  # by what the getters answer
        self._version = find_blas("cublasGetVersion_v2")
        self._lt_version = find_lt("cublasLtGetVersion")

    def versions(self, handle: int) -> State:
        """The versions of cuBLAS and cuBLASLt; "absent" for one that says none."""
        lt = ABSENT if self._lt_version is None else self._lt_version()
        return (_ask("cublasGetVersion_v2", self._version, handle), lt)

    def state(self, handle: int) -> State:
        """A value for each of GETTERS, in order; "absent" where the release has no such getter,
        "unsupported" where the device has no such thing.

        Raises:
            KeyUnreadableError: A getter that exists fails.
        """
        answers = _core.ask_each(self._addresses, handle)
        known = self._states.get(answers)
        if known is None:
            known = self._states[answers] = self._named(answers)
        return known

    def _named(self, answers: tuple[int, ...]) -> State:
        """The state that (status, value) of every getter that there is, in a row, stand for."""
        left = iter(answers)
        values: list[int | str] = []
        for name, getter in self._getters.items():
            if getter is None:
                values.append(ABSENT)
                continue
            status, value = next(left), next(left)
            if status not in (0, _NOT_SUPPORTED):
                raise KeyUnreadableError(f"{name}: the library returned status {status}")
            values.append(UNSUPPORTED if status else value)
        return tuple(values)


def _ask(name: str, getter: Callable[..., int] | None, handle: int) -> int | str:
    if getter is None:
        return ABSENT
    value = ctypes.c_int()
    status = getter(handle, ctypes.byref(value))
    if status:
        raise KeyUnreadableError(f"{name}: the library returned status {status}")
    return value.value


def open_native(paths: BlasPaths) -> NativeBlas:
    """The libraries at ``paths``, which this process has loaded; nothing is loaded anew.

    Raises:
        KeyUnreadableError: A path is not loaded after all.
    """
    blas, lt = (_open(path) for path in paths)

    def find_blas(name: str) -> Callable[..., int] | None:
        return _function(blas, name, [ctypes.c_void_p, ctypes.c_void_p], ctypes.c_int)

    def find_lt(name: str) -> Callable[..., int] | None:
        return _function(lt, name, [], ctypes.c_size_t)

    return NativeBlas(find_blas, find_lt)


def _open(path: str) -> ctypes.PyDLL:
    try:
        return ctypes.PyDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError as error:
        raise KeyUnreadableError(f"{path}: cannot be opened again: {error}") from error


def _function(
    library: ctypes.PyDLL, name: str, arguments: list[Any], result: Any
) -> Callable[..., int] | None:
    try:
        function = library[name]  # a function object of our own: ctypes caches attributes only
    except AttributeError:
        return None
    function.argtypes, function.restype = arguments, result
    return function
