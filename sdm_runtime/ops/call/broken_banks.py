"""Banks that a failure has left between two states: refused until someone writes them anew."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from sdm_runtime.tensor.storages import ByStorage

_OP = "sdm_write_read"


class _Broken(NamedTuple):
    version: int | None  # None: inference tensors have none
    reason: str


_broken: ByStorage[_Broken] = ByStorage()


def mark_broken(bank: Tensor, reason: str) -> None:
    """Remember that the bank holds neither the contents before a call nor those after it."""
    _broken.keep(bank, _Broken(None if bank.is_inference() else bank._version, reason))


def check_whole(bank: Tensor) -> None:
    """Raise RuntimeError where a failure has left the bank in between, and nobody wrote it since.

    A write tells by the version counter; that of an inference tensor by nothing: such a bank stays
    refused.
    """
    if not _broken or (known := _broken.find(bank)) is None:
        return
    if known.version is not None and bank._version != known.version:
        _broken.forget(bank)
        return
    raise RuntimeError(
        f"[{_OP}] memory: expected a whole bank, got one that is half written: {known.reason}. "
        "Write the bank anew (memory.copy_(...)) or pass another one"
    )
