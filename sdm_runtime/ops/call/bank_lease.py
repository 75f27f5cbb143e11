"""Who may write the bank: the version that a forward left, and the way back to the one before.

The forward writes the caller's bank in place and the backward restores it. Autograd's version
counter follows the contents: the forward raises it, so that a tensor saved before the call cannot
be used while the bank is advanced; a backward that restores every bit resets it.
"""

from __future__ import annotations

import threading
from enum import Enum
from weakref import WeakValueDictionary

import torch
from torch import Tensor

_OP = "sdm_write_read"


class State(Enum):
    """What the bank of a call holds."""

    UNTOUCHED = "untouched"
    ADVANCED = "advanced"
    BROKEN = "half restored"
    RESTORED = "restored"


class BankLease:
    """One call's hold on its bank, from its forward to its backward."""

    def __init__(self, memory: Tensor) -> None:
        """Before the forward writes. The alias shares memory's storage and version counter."""
        self.bank = memory.detach()
        self._before = self._after = memory._version
        self._state = State.UNTOUCHED
        if memory.requires_grad:
            _claim(self)

    def advanced(self) -> None:
        """The forward has written the bank, to its end."""
        self._state = State.ADVANCED
        self._after = self.bank._version

    def require_advanced(self) -> None:
        """Raise unless the bank holds what the forward left: only then can it be restored."""
        if self._state is State.BROKEN:
            raise RuntimeError(
                f"[{_OP}] backward: another attempt is restoring the bank, or failed and left it "
                "half restored"
            )
        if self._state is State.RESTORED:
            raise RuntimeError(
                f"[{_OP}] backward: expected the first backward of this call, got a second: the "
                "first has restored the bank and used up what the forward saved"
            )
        if self.bank._version != self._after:
            raise RuntimeError(
                f"[{_OP}] memory: expected the bank as the forward left it (version "
                f"{self._after}), got version {self.bank._version}: something has written it "
                "since. Calls on one bank must run their backwards last to first; inside "
                "torch.utils.checkpoint, make or clone the bank inside the checkpointed function"
            )

    def restoring(self) -> None:
        """The backward starts to write the bank: one of those that found it advanced.

        Until here others may have come in between: another thread's backward of this call, or a
        checkpoint's forward, run again by the unpacking of saved tensors on this very bank.
        """
        with _lock:
            self.require_advanced()
            self._state = State.BROKEN

    def not_restored(self) -> None:
        """The backward has written nothing after all: it can be run again."""
        self._state = State.ADVANCED

    def restored(self, *, exact: bool) -> None:
        """The backward has written every row back; exact: to the bit."""
        self._state = State.RESTORED
        if exact:
            set_version(self.bank, self._before)
        else:
            raise_version(self.bank)

    def pending(self, other: Tensor) -> bool:
        """Whether this call's backward is to come and would restore rows of other."""
        if self._state is not State.ADVANCED or self.bank._version != self._after:
            return False
        begin, end = _span(self.bank)
        other_begin, other_end = _span(other)
        return begin < other_end and other_begin < end


_lock = threading.Lock()
_leases: WeakValueDictionary[int, BankLease] = WeakValueDictionary()


def _claim(lease: BankLease) -> None:
    """Refuse a learned bank that a pending call has advanced: its gradient would be misplaced.

    Both calls would report the gradient of the bank they started from as the gradient of the same
    tensor, but only the first started from it.
    """
    with _lock:
        for earlier in list(_leases.values()):
            if earlier.pending(lease.bank):
                raise RuntimeError(
                    f"[{_OP}] memory: expected a bank whose earlier call has run its backward, "
                    "since memory requires grad, got one advanced by a call whose backward is "
                    "still to come: run that backward first, or pass memory.detach() or a clone"
                )
        _leases[id(lease)] = lease


def _span(x: Tensor) -> tuple[int, int]:
    begin = x.data_ptr()
    return begin, begin + x.numel() * x.element_size()


def raise_version(x: Tensor) -> None:
    """Tell autograd of a write that no torch operation made; refused as such a write would be."""
    x[:0].zero_()  # no element changes


def set_version(x: Tensor, version: int) -> None:
    """Tell autograd that a tensor's contents are those of an earlier version."""
    torch._C._autograd._unsafe_set_version_counter((x,), (version,))
