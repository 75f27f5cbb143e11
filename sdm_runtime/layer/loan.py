"""A bank in the hands of a call that advances it in place, and how it is taken back."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import FrameType

import torch
from torch import Tensor

from sdm_runtime.tensor.refs import capturing

# Rows are kept where that costs at most this part of the bank, as in decoding.
_KEPT_PART = 8
_CALLS = (
    "sdm_runtime.layer.memory_layer"  # the module whose `forward`, given a cache, takes its bank
)


class Loan:
    """What a call may do to a bank, and the rows as they were if those are few.

    A call that raises does not come to its end, which is all that is noted: when the bank is next
    asked for, `runs` finds out whether the call has left, by the frames on the stack, and `undo`
    whether the bank must be restored and can be. No handler has to run then. Calls in a compiled
    graph make no loans.
    """

    def __init__(self, bank: Tensor, written: Tensor, cache: object) -> None:
        """Before the call given `cache` changes `bank` [rows, hd] at the row numbers `written`."""
        self._bank = bank
        self._thread = threading.get_ident()
        # Nothing would tell later that a call which runs in another way has ended.
        self._seen = _has(next(_calls(), None), cache)
        # Inference tensors have no version: whether such a bank was written cannot be told.
        self._version = None if bank.is_inference() else bank._version
        self._rows: Tensor | None = None
        self._values: Tensor | None = None
        if written.numel() * _KEPT_PART <= bank.shape[0] and not _only_recorded(bank):
            self._rows = written.flatten()
            self._values = bank.index_select(0, self._rows)

    @property
    def elsewhere(self) -> bool:
        """Whether another thread's call has the bank: from here one cannot tell if it still runs.

        In the thread of the call itself `runs` can.
        """
        return self._thread != threading.get_ident()

    def runs(self, cache: object, *, inner: bool) -> bool:
        """Whether the call is still running in this thread; asked by a hook or by a call within it.

        Args:
            cache: what the call was given.
            inner: asked by a call that was itself given the cache, and which does not count.
        """
        calls = _calls()
        if inner:
            next(calls, None)
        return not self._seen or any(_has(frame, cache) for frame in calls)

    def undo(self) -> bool:
        """Restore the bank after a call that has raised: whether it is now as it was before."""
        if self._version is not None and self._bank._version == self._version:
            return True
        if self._rows is None or self._values is None:
            return False
        # A row that was written several times has as many copies of its one value.
        with torch.inference_mode(self._bank.is_inference()), torch.no_grad():
            self._bank.index_copy_(0, self._rows.long(), self._values)
        return True


def _calls() -> Iterator[FrameType]:
    """The layers' calls on this thread's stack, the innermost first."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "forward" and frame.f_globals.get("__name__") == _CALLS:
            yield frame
        frame = frame.f_back


def _has(frame: FrameType | None, cache: object) -> bool:
    return frame is not None and frame.f_locals.get("cache") is cache


def _only_recorded(bank: Tensor) -> bool:
    """Whether a graph capture records the call: nothing is written, and the graph stays short."""
    return bank.is_cuda and capturing(bank.device)
