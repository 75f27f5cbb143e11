"""Banks that a failure has left between two states: refused until someone writes them anew."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from sdm_runtime.tensor.storages import ByStorage, Span, overlap, span_of

_OP = "sdm_write_read"


class _Broken(NamedTuple):
    version: int | None  # None: inference tensors have none
    reason: str
    span: Span  # of the bank in its storage


_broken: ByStorage[_Broken] = ByStorage()


def mark_broken(bank: Tensor, reason: str) -> None:
    """Remember that the bank holds neither the contents before a call nor those after it."""
    _broken.keep(bank, _Broken(_version(bank), reason, span_of(bank)))


def check_whole(bank: Tensor) -> None:
    """Raise RuntimeError where a failure has left rows of it in between, and nobody wrote since.

    A write tells by the version counter, which does not say where; that of an inference tensor by
    nothing: such a bank stays refused.
    """
    if not _broken or (known := _broken.find(bank)) is None:
        return
    if known.version is not None and _version(bank) != known.version:
        _broken.forget(bank)
        return
    if overlap(known.span, span_of(bank)):
        raise RuntimeError(
            f"[{_OP}] memory: expected a whole bank, got one that is half written: {known.reason}. "
            "Write the bank anew (memory.copy_(...)) or pass another one"
        )


def note_own_write(bank: Tensor) -> None:
    """A call on another part of a broken storage, whose version counter it shares, has ended."""
    if _broken and (known := _broken.find(bank)) is not None:
        _broken.keep(bank, known._replace(version=_version(bank)))


def _version(bank: Tensor) -> int | None:
    return None if bank.is_inference() else bank._version
