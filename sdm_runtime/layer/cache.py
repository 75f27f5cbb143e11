"""What a call of the layer leaves for the next one."""

from __future__ import annotations

import threading
from typing import Any, final

import torch
from torch import Tensor
from torch.compiler import is_compiling

from sdm_runtime.layer.loan import Loan
from sdm_runtime.tensor.differentiable import may_run_again
from sdm_runtime.tensor.untraced import untraced

_ADVANCED = (
    "it was handed to a later call, which advanced its bank in place: hand a clone() to one of two "
    "calls that go on from here"
)
_RESTORED = (
    "the backward of the training call that returned it has restored the bank to what it was "
    "before that call: take a clone() before the backward to go on from here"
)
_LOST = (
    "a call that it was handed to raised after it had begun to advance the bank in place, and too "
    "many rows to keep were to change: take a clone() before a long call that may fail"
)
_IN_CHAIN = (
    "a call that runs as one chain of plans has it, or had it when it raised after the chain had "
    "begun: take a clone() before a call that may be interrupted"
)
_IN_GRAPH = (
    "a compiled call has it, or had it when it raised: take a clone() before a call that may fail"
)
_ELSEWHERE = "a call in another thread has it, or had it when it raised"
_RUNNING = (
    "the call that has it still runs: take a clone() before the call, or read what it returns"
)

_making_locks = threading.Lock()


@final
class MemoryCache:
    """The memory bank after a call, and the number of tokens it has seen.

    Hand it to the layer's next call to continue the sequences. No gradient flows through a cache:
    training over consecutive calls is truncated backpropagation through time.

    Who owns the bank:

    - A call in eval and no grad mode advances the bank of the cache it is given in place, and
      returns a new cache with it: a decoding step copies no bank. The given cache is used up; take
      `clone()` first to go on from one point twice. (A bank that a backward still needs, or one of
      inference mode that is used outside of it, is copied: the given cache stays valid.)
    - Any other call works on a copy and leaves the given cache alone, and so does one inside of a
      reentrant checkpoint, whose backward repeats it.
    - **The bank of the cache that a training call returns is valid until that call's backward**,
      which restores the memory in place (`valid_until_backward` is true); `clone()` keeps it.
    - After a call that raised the cache is still valid if the bank had not been advanced, or if the
      call was to write at most as many slots, over all tokens, as an eighth of the bank's rows:
      those are kept and put back. A chain that ends with the output projection keeps none: if the
      device fails or an interrupt falls in it, the bank is lost. A lost bank is refused by name.
    - Under torch.compile a training call's cache has a bank of its own, which stays valid. A
      compiled call that advances a bank in place keeps no rows to put back, and a reentrant
      checkpoint around it is refused in its backward.
    - `copy.copy`, `copy.deepcopy` and pickling, also by torch.save, make what `clone()` makes: a
      cache with a bank of its own. There are no subclasses, which such copies would not be of.

    A cache that is no longer valid refuses to give its bank, and says why. So does one that was
    handed to a call which still runs and advances the bank: in a hook of the layer's projections,
    or in another thread.

    Attributes:
        tokens: tokens seen by each sequence since the initial bank.
    """

    def __init__(self, bank: Tensor, tokens: int, *, valid_until_backward: bool = False) -> None:
        """Wrap a bank as a call left it: for the layer's use, and for torch.export's programs."""
        traced = is_compiling()
        # A detached value would be an output of a compiled graph beside the bank itself.
        self._bank = bank if traced and not bank.requires_grad else bank.detach()
        # Held while a bank is lent, copied or given up; a compiled graph makes caches and no locks.
        self._owner = None if traced else threading.Lock()
        self._described: str | None = None  # once the bank is gone
        self._invalid: str | None = None
        self._loan: Loan | None = None
        self._valid_until_backward = valid_until_backward
        self.tokens = tokens

    def __init_subclass__(cls, **_: object) -> None:
        """Refused: the layer returns caches, and copies them, of this class alone."""
        expected = "expected no subclass: hold a MemoryCache beside what belongs to it"
        raise TypeError(f"[MemoryCache] {cls.__name__}: {expected}")

    @property
    def bank(self) -> Tensor:
        """The bank [B * num_heads * slots_per_head, head_dim], without a gradient.

        Raises:
            RuntimeError: the cache was advanced by a later call, restored by a backward or lost by
                a call that raised; or a call has it that still runs, or that ran in another thread.
        """
        return self._owned(for_call=False)

    def bank_for_call(self) -> Tensor:
        """The bank within a call that was given this cache and has not taken it (for the layer)."""
        return self._owned(for_call=True)

    def _owned(self, *, for_call: bool) -> Tensor:
        if self._loan is not None:
            self._take_back(for_call)
        if self._invalid is not None:
            raise RuntimeError(f"[MemoryCache] bank: no longer valid, {self._invalid}")
        return self._bank

    @property
    def valid_until_backward(self) -> bool:
        """Whether the backward of the call that returned this cache will take its bank away."""
        return self._valid_until_backward

    def clone(self) -> MemoryCache:
        """A cache with its own copy of the bank, valid whatever happens to this one.

        A call or a backward in another thread that would change the bank waits for the copy.
        """
        return MemoryCache(self.bank.clone() if is_compiling() else self._copy(), self.tokens)

    def _copy(self) -> Tensor:
        with self._held():
            return self.bank.clone()

    def _held(self) -> threading.Lock:
        """The lock; of a cache that a graph has made one, whoever asks first."""
        if self._owner is None:
            with _making_locks:
                self._owner = self._owner or threading.Lock()
        return self._owner

    def __copy__(self) -> MemoryCache:
        """As clone(): two caches on one bank would each take it for their own."""
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> MemoryCache:
        """As clone()."""
        memo[id(self)] = twin = self.clone()
        return twin

    def __reduce__(self) -> tuple[type[MemoryCache], tuple[Tensor, int]]:
        """A copy of the bank: where tensors are sent to a process, their memory is shared."""
        return MemoryCache, (self._copy(), self.tokens)

    def take_bank(self, written: Tensor | None, *, copy: bool) -> Tensor:
        """The bank for a call to advance in place, until `returned` (for the layer's use).

        Args:
            written: numbers of the rows that the call is to write, any integers of any shape; None
                where the call cannot raise once it has begun, and no row is kept.
            copy: leave this cache valid and return a copy. A copy is also made where another
                owner relies on the bank: a backward to come, a checkpoint that repeats the call,
                or inference mode that has ended.
        """
        with self._held():
            bank = self.bank_for_call()
            frozen = bank.is_inference() and not torch.is_inference_mode_enabled()
            if copy or frozen or self._valid_until_backward or may_run_again():
                return bank.clone()
            if written is None:
                self._invalid = _IN_CHAIN
                return bank
            self._loan = Loan(bank, written, self)
            return bank

    def take_traced(self, *, copy: bool) -> Tensor:
        """As take_bank within a compiled graph, for which no row can be kept."""
        bank = self.bank_for_call()
        if copy or self._valid_until_backward:
            return bank.clone()
        self._invalid = _IN_GRAPH
        return bank

    def returned(self) -> None:
        """Note that the call which took the bank, if it did, has come to its end."""
        if self._loan is not None or self._invalid in (_IN_CHAIN, _IN_GRAPH):
            self._loan, self._invalid = None, _ADVANCED

    def untouched(self) -> None:
        """Note that the chain which took the bank, if one did, has not begun (for the layer)."""
        if self._invalid is _IN_CHAIN:
            self._invalid = None

    @untraced
    def _take_back(self, for_call: bool) -> None:
        """After a call that did not come to its end."""
        assert self._loan is not None
        if self._loan.elsewhere:
            raise RuntimeError(f"[MemoryCache] bank: not here to use, {_ELSEWHERE}")
        if self._loan.runs(self, inner=for_call):
            raise RuntimeError(f"[MemoryCache] bank: not here to use, {_RUNNING}")
        loan, self._loan, self._invalid = self._loan, None, _LOST
        if loan.undo():
            self._invalid = None

    @untraced
    def taken(self) -> None:
        """End the validity of the bank: a backward is about to restore it."""
        with self._held():
            self._invalid = _RESTORED

    @untraced
    def given_back(self) -> None:
        """That backward has left it as it was."""
        with self._held():
            self._invalid = None

    @untraced
    def restored(self) -> None:
        """That backward has ended. Nobody gets the bank from here any more: its memory is free."""
        with self._held():
            self._described = self._describe()
            self._bank = self._bank.new_empty((0, self._bank.shape[1]))

    def _describe(self) -> str:
        return f"bank {tuple(self._bank.shape)} {self._bank.dtype}"

    def __repr__(self) -> str:
        """Shape, dtype, tokens and validity; never the values."""
        note = f", invalid: {self._invalid}" if self._invalid else ""
        note = ", a call has it, or had it when it raised" if self._loan else note
        until = ", valid until backward" if self._valid_until_backward and not note else ""
        return (
            f"MemoryCache({self._described or self._describe()}, tokens={self.tokens}{until}{note})"
        )
