"""Storages by identity, what is known of one as long as it lives, and places in one."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

_T = TypeVar("_T")

Span = tuple[int, int]  # the first byte in the storage, and the end


def storage_key(x: Tensor) -> int:
    """What tells x's storage from all others that live, or that a weak reference is held of."""
    return int(x.untyped_storage()._cdata)


def span_of(x: Tensor) -> Span:
    """The bytes of a contiguous tensor within its storage, which may be moved as a whole."""
    begin = int(x.storage_offset()) * x.itemsize
    return begin, begin + x.nbytes


def overlap(a: Span, b: Span) -> bool:
    """Whether two spans of one storage share a byte."""
    return a[0] < b[1] and b[0] < a[1]


class ByStorage(Generic[_T]):
    """Values by the storage of a tensor, which they do not keep alive. Threads may share one."""

    def __init__(self) -> None:
        """Of none."""
        self._lock = threading.Lock()
        self._known: dict[int, tuple[StorageWeakRef, _T]] = {}

    def __bool__(self) -> bool:
        """Whether there may be any: asked by every call."""
        return bool(self._known)

    def keep(self, x: Tensor, value: _T) -> None:
        """The value of x's storage from now on; those of storages that are gone are let go."""
        weak = StorageWeakRef(x.untyped_storage())  # type: ignore[no-untyped-call]
        with self._lock:
            self._known = {key: known for key, known in self._known.items() if not _gone(known[0])}
            self._known[storage_key(x)] = weak, value

    def find(self, x: Tensor) -> _T | None:
        """The value of x's storage; None if it has none."""
        with self._lock:
            known = self._known.get(storage_key(x))
        return None if known is None else known[1]

    def forget(self, x: Tensor) -> None:
        """Let the value of x's storage go."""
        with self._lock:
            self._known.pop(storage_key(x), None)


def _gone(storage: StorageWeakRef) -> bool:
    return bool(storage.expired())  # type: ignore[no-untyped-call]
