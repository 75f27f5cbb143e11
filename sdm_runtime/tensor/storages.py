"""What is known of a storage, as long as it lives."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

_T = TypeVar("_T")


class ByStorage(Generic[_T]):
    """Values by the storage of a tensor, which they do not keep alive. Threads may share one."""

    def __init__(self) -> None:
        """Of none."""
        self._lock = threading.Lock()
        # Another storage may come to lie at the address of one that is gone.
        self._known: dict[int, tuple[StorageWeakRef, _T]] = {}

    def __bool__(self) -> bool:
        """Whether there may be any: asked by every call."""
        return bool(self._known)

    def keep(self, x: Tensor, value: _T) -> None:
        """The value of x's storage from now on."""
        storage = x.untyped_storage()
        weak = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        with self._lock:
            self._known = {k: v for k, v in self._known.items() if not _gone(v[0])}
            self._known[storage._cdata] = weak, value

    def find(self, x: Tensor) -> _T | None:
        """The value of x's storage; None if it has none."""
        with self._lock:
            weak, value = self._known.get(x.untyped_storage()._cdata, (None, None))
        return None if weak is None or _gone(weak) else value

    def forget(self, x: Tensor) -> None:
        """Let the value of x's storage go."""
        with self._lock:
            self._known.pop(x.untyped_storage()._cdata, None)


def _gone(storage: StorageWeakRef) -> bool:
    return bool(storage.expired())  # type: ignore[no-untyped-call]
