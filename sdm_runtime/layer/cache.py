"""What a call of the layer leaves for the next one."""

from __future__ import annotations

import torch
from torch import Tensor

_ADVANCED = (
    "it was handed to a later call, which advanced its bank in place: hand a clone() to one of two "
    "calls that go on from here"
)
_RESTORED = (
    "the backward of the training call that returned it has restored the bank to what it was "
    "before that call: take a clone() before the backward to go on from here"
)


class MemoryCache:
    """The memory bank after a call, and the number of tokens it has seen.

    Hand it to the layer's next call to continue the sequences. No gradient flows through a cache:
    training over consecutive calls is truncated backpropagation through time.

    Who owns the bank:

    - A call in eval and no grad mode advances the bank of the cache it is given in place, and
      returns a new cache with it: a decoding step copies no bank. The given cache is used up; take
      `clone()` first to go on from one point twice.
    - Any other call works on a copy and leaves the given cache alone.
    - **The bank of the cache that a training call returns is valid until that call's backward**,
      which restores the memory in place (`valid_until_backward` is true); `clone()` keeps it.

    A cache that is no longer valid refuses to give its bank, and says why.

    Attributes:
        tokens: tokens seen by each sequence since the initial bank.
    """

    def __init__(self, bank: Tensor, tokens: int, *, valid_until_backward: bool = False) -> None:
        """Wrap a bank as a call left it (for the layer's use)."""
        self._bank = bank.detach()
        self._invalid: str | None = None
        self._valid_until_backward = valid_until_backward
        self.tokens = tokens

    @property
    def bank(self) -> Tensor:
        """The bank [B * num_heads * slots_per_head, head_dim], without a gradient.

        Raises:
            RuntimeError: the cache was advanced by a later call, or restored by a backward.
        """
        if self._invalid is not None:
            raise RuntimeError(f"[MemoryCache] bank: no longer valid, {self._invalid}")
        return self._bank

    @property
    def valid_until_backward(self) -> bool:
        """Whether the backward of the call that returned this cache will take its bank away."""
        return self._valid_until_backward

    def clone(self) -> MemoryCache:
        """A cache with its own copy of the bank, valid whatever happens to this one."""
        return MemoryCache(self.bank.clone(), self.tokens)

    def take_bank(self, *, copy: bool) -> Tensor:
        """The bank for a call to advance in place (for the layer's use).

        Args:
            copy: leave this cache valid and return a copy. A copy is also made where another
                owner relies on the bank: a backward to come, or inference mode that has ended.
        """
        bank = self.bank
        frozen = bank.is_inference() and not torch.is_inference_mode_enabled()
        if copy or frozen or self._valid_until_backward:
            return bank.clone()
        self._invalid = _ADVANCED
        return bank

    def mark_restored(self, *_: object) -> None:
        """End the validity of the bank: a hook for the backward that restores it."""
        self._invalid = _RESTORED

    def __repr__(self) -> str:
        """Shape, dtype, tokens and validity; never the values."""
        shape, dtype = tuple(self._bank.shape), self._bank.dtype
        note = f", invalid: {self._invalid}" if self._invalid else ""
        until = ", valid until backward" if self._valid_until_backward and not note else ""
        return f"MemoryCache(bank {shape} {dtype}, tokens={self.tokens}{until}{note})"
