"""Storages by identity, and what is known of one as long as it lives."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

_T = TypeVar("_T")


class WeakStorage:
    """Which storage a tensor had, without keeping its memory."""

    __slots__ = ("_weak",)

    def __init__(self, x: Tensor) -> None:
        """Of x. No other storage gets its identity meanwhile."""
        self._weak = StorageWeakRef(x.untyped_storage())  # type: ignore[no-untyped-call]

    def is_of(self, x: Tensor) -> bool:
        """Whether x has this storage."""
        return bool(self._weak.cdata == x.untyped_storage()._cdata)

    def gone(self) -> bool:
        """Whether nothing has it any more."""
        return bool(self._weak.expired())  # type: ignore[no-untyped-call]


class ByStorage(Generic[_T]):
    """Values by the storage of a tensor, which they do not keep alive. Threads may share one."""

    def __init__(self) -> None:
        """Of none."""
        self._lock = threading.Lock()
        self._known: dict[int, tuple[WeakStorage, _T]] = {}

    def __bool__(self) -> bool:
        """Whether there may be any: asked by every call."""
        return bool(self._known)

    def keep(self, x: Tensor, value: _T) -> None:
        """The value of x's storage from now on."""
        with self._lock:
            self._known = {key: known for key, known in self._known.items() if not known[0].gone()}
            self._known[_identity(x)] = WeakStorage(x), value

    def find(self, x: Tensor) -> _T | None:
        """The value of x's storage; None if it has none."""
        with self._lock:
            known = self._known.get(_identity(x))
        return None if known is None else known[1]

    def forget(self, x: Tensor) -> None:
        """Let the value of x's storage go."""
        with self._lock:
            self._known.pop(_identity(x), None)


def _identity(x: Tensor) -> int:
    return int(x.untyped_storage()._cdata)
