"""One call's hold on the bank that it advances and its backward restores.

Autograd's version counter follows the contents: the forward takes a new version, so that a tensor
saved before the call cannot be used while the bank is advanced; a backward that restores every bit
sets the version from before the call again. Which calls may be undone, `bank_history.py` knows.
"""

from __future__ import annotations

from enum import Enum
from typing import NoReturn, Protocol
from weakref import ref

import torch
from torch import Tensor

from sdm_runtime.ops.call.bank_history import (
    Advance,
    BankHistory,
    find_history,
    history_lock,
    history_of,
)
from sdm_runtime.ops.call.broken_banks import check_whole, mark_broken, note_own_write
from sdm_runtime.ops.call.versions import set_version
from sdm_runtime.tensor.differentiable import may_run_again
from sdm_runtime.tensor.storages import ByStorage

_OP = "sdm_write_read"


class State(Enum):
    """What the bank of a call holds."""

    UNTOUCHED = "untouched"
    ADVANCED = "advanced"
    RESTORING = "half restored"  # by an attempt that runs or has failed
    RESTORED = "restored"


class Watcher(Protocol):
    """Who relies on an advanced bank."""

    def taken(self) -> None:
        """A backward is about to restore it."""

    def given_back(self) -> None:
        """That backward has left it as it was."""

    def restored(self) -> None:
        """The bank is as it was before the call."""


class BankLease:
    """From a call's forward to its backward."""

    def __init__(self, memory: Tensor, *, keep_state: bool) -> None:
        """Before the forward writes. `bank` shares memory's storage and version counter.

        Raises:
            RuntimeError: The bank is half written, or it requires grad and another call's backward
                on it is to come.
        """
        self._bank: Tensor | None = memory.detach()
        self._given = ref(memory)
        self._keep_state = keep_state
        self._learned = memory.requires_grad
        self._state, self._spoiled, self._ran = State.UNTOUCHED, False, False
        self._watcher: ref[Watcher] | None = None
        check_whole(memory)
        if _first_passes:
            _check_second_pass(memory)
        with history_lock():
            history = history_of(memory)
            history.look()
            if self._learned and history.meets(memory, _is_awaited):
                raise RuntimeError(
                    f"[{_OP}] memory: expected a bank whose earlier call has run its backward, "
                    "since memory requires grad, got one advanced by a call whose backward is "
                    "still to come: run that backward first, or pass memory.detach() or a clone"
                )
            self._began = history.begin(self)
            self._before: int = memory._version
            self._history: BankHistory | None = history

    @property
    def bank(self) -> Tensor:
        """The caller's storage; none once it is restored."""
        assert self._bank is not None
        return self._bank

    @property
    def keep_state(self) -> bool:
        """Whether the backward leaves the bank as the forward did."""
        return self._keep_state

    def written_by_others(self) -> None:
        """See :class:`~sdm_runtime.ops.call.bank_history.Advance`."""
        self._spoiled = True

    def watch(self, watcher: Watcher) -> None:
        """Tell one who relies on the advanced bank, as long as it lives."""
        self._watcher = ref(watcher)

    def advanced(self) -> None:
        """The forward has written the bank, to its end."""
        with history_lock():
            self._here().advanced(self, self._before, self._began)
            self._state = State.ADVANCED

    def undoing(self) -> bool:
        """The call has failed: whether what it has written can and must be undone."""
        with history_lock():
            self._here().begin(self)
        return True

    def undone(self, *, repeated: bool) -> None:
        """The bank holds what it held before the call, to the bit.

        repeated: A checkpoint has stopped the call, which it made again for what it saves. Where
        the first one has advanced this very bank, that is of another state, and no backward may
        take it.
        """
        with history_lock():
            self._here().undone(self, self._before, self._began, repeated=repeated)
        self._release()

    def failed(self, reason: str) -> None:
        """The bank holds something between the two."""
        with history_lock():
            self._here().written(self, self.bank)
        mark_broken(self.bank, reason)
        self._release()

    def require_advanced(self) -> None:
        """Raise unless the bank holds what the forward left: only then can it be restored."""
        with history_lock():
            self._require_advanced()

    def _require_advanced(self) -> None:
        if self._state is State.RESTORING:
            raise RuntimeError(
                f"[{_OP}] backward: another attempt is restoring the bank, or failed and left it "
                "half restored"
            )
        if self._state is not State.ADVANCED:
            raise RuntimeError(
                f"[{_OP}] backward: expected the first backward of this call, got a second: the "
                "first has restored the bank and used up what the forward saved (keep_state=True "
                "allows for more)"
            )
        given, bank, history = self._given(), self.bank, self._here()
        if given is not None and given.data_ptr() != bank.data_ptr():
            raise RuntimeError(
                f"[{_OP}] memory: expected the bank in the memory that the forward advanced, got "
                "it in another: its .data was replaced since, and a backward would restore what "
                "it does not hold any more"
            )
        history.look()
        if self._spoiled or history.later(self):
            self._refuse_later()

    def _refuse_later(self) -> NoReturn:
        what = (
            "written since by something else, or by a call that was dropped"
            if self._spoiled
            else "advanced by a later call whose backward is to come, or which keeps its state"
        )
        raise RuntimeError(
            f"[{_OP}] memory: expected the bank as the forward left it, got one {what}. Calls on "
            "one bank must run their backwards last to first; inside torch.utils.checkpoint, make "
            "or clone the bank inside the checkpointed function"
        )

    def restoring(self) -> None:
        """The backward starts to write the bank: one of those that found it advanced.

        Until here others may have come in between: another thread's backward of this call, or a
        checkpoint's forward, run again by the unpacking of saved tensors on this very bank.
        """
        with history_lock():
            self._require_advanced()
            self._here().begin(self)
            self._state = State.RESTORING
        if (watcher := self._watching()) is not None and not self._keep_state:
            watcher.taken()

    def not_restored(self) -> None:
        """The backward has left the bank as it was: it can be run again."""
        with history_lock():
            if self._history is None:
                return
            if self._state is State.RESTORING:
                self._state = State.ADVANCED
            self._history.unchanged(self)
        if (watcher := self._watching()) is not None and not self._keep_state:
            watcher.given_back()

    def kept(self) -> None:
        """The backward has restored the bank and advanced it again."""
        with history_lock():
            self._ran, self._state = True, State.ADVANCED
            self._here().kept(self)

    def broken(self, reason: str) -> None:
        """The backward has failed with a part of the rows restored."""
        with history_lock():
            self._here().written(self, self.bank)
        mark_broken(self.bank, reason)

    def restored(self, *, exact: bool) -> None:
        """The backward has written every row back; exact: to the bit. Asked again it is done."""
        with history_lock():
            if self._history is None:
                return
            self._state = State.RESTORED
            self._history.restored(self, exact=exact)
            watcher = self._watching()
            self._release()
        if watcher is not None:
            watcher.restored()

    def awaits_backward(self) -> bool:
        """Whether a learned bank's gradient is still to come from this call."""
        pending = self._state is State.ADVANCED and not self._spoiled
        return self._learned and pending and not self._ran

    def awaits_backward_now(self) -> bool:
        """The same, after a look at what others have written since."""
        with history_lock():
            if self._history is not None:
                self._history.look()
            return self.awaits_backward()

    def _here(self) -> BankHistory:
        assert self._history is not None
        return self._history

    def _watching(self) -> Watcher | None:
        return None if self._watcher is None else self._watcher()

    def _release(self) -> None:
        """Outputs and losses that someone keeps hold the lease, which must not hold the bank."""
        self._bank = self._history = self._watcher = None


def _is_awaited(call: Advance) -> bool:
    return isinstance(call, BankLease) and call.awaits_backward()


# Banks as the first pass of a reentrant checkpoint has left them, which has no gradients.
_first_passes: ByStorage[int] = ByStorage()


def _check_second_pass(memory: Tensor) -> None:
    """Refuse the second pass, within the backward, on a bank that the first one has advanced."""
    if torch._C._current_graph_task_id() >= 0 and _first_passes.find(memory) == memory._version:
        raise RuntimeError(
            f"[{_OP}] memory: expected a bank made inside the checkpointed function, got one that "
            "its first pass has advanced: make or clone the bank inside it"
        )


class PassingWrite:
    """A call without a backward: what others' backwards must know of it."""

    def __init__(self, memory: Tensor) -> None:
        """Before the forward writes.

        Raises:
            RuntimeError: The bank is half written.
        """
        check_whole(memory)
        self.bank = memory.detach()
        self._before = None if memory.is_inference() else memory._version
        self._ended = False
        self._history = find_history(memory)
        if self._history is not None:
            with history_lock():
                self._history.begin(self)

    def advanced(self) -> None:
        """The forward has written the bank, to its end."""
        self._ended = True
        if self._history is not None:
            with history_lock():
                self._history.written(self, self.bank)
        else:
            note_own_write(self.bank)
        if may_run_again():
            _first_passes.keep(self.bank, self.bank._version)

    def undoing(self) -> bool:
        """The call has failed: whether what it has written can and must be undone."""
        return not self._ended

    def undone(self, *, repeated: bool) -> None:
        """The bank holds what it held before the call, to the bit."""
        del repeated  # it saves nothing
        if self._history is not None:
            with history_lock():
                self._history.unchanged(self)
        if self._before is not None:
            set_version(self.bank, self._before)

    def failed(self, reason: str) -> None:
        """The bank holds something between the two."""
        self.advanced()
        mark_broken(self.bank, reason)
