"""Autograd's version counter of a bank, which must follow its contents.

A tensor that was saved at a version may be used again at that version and at no other one. So two
contents never share a version: a forward takes one that no tensor had before.
"""

from __future__ import annotations

import threading

import torch
from torch import Tensor

# Counters have 32 bits, and torch's own operations count from 0 by one. The upper half is ours; the
# distance leaves room for torch's operations on an advanced bank, up to the next of our versions.
_FIRST, _END, _DISTANCE = 1 << 31, 1 << 32, 1 << 14

_lock = threading.Lock()
_next = _FIRST


def raise_version(x: Tensor) -> None:
    """Tell autograd of a write that no torch operation made; refused as such a write would be."""
    x[:0].zero_()  # no element changes


def set_version(x: Tensor, version: int) -> None:
    """Tell autograd that a tensor's contents are those of a version."""
    torch._C._autograd._unsafe_set_version_counter((x,), (version,))


def take_new_version(x: Tensor) -> int:
    """Give a tensor, and all that share its counter, a version that none has had.

    After 2^17 of them they begin anew: what was saved that long ago is gone.
    """
    global _next
    with _lock:
        version = max(_next, x._version + 1)
        if version >= _END:
            version = _FIRST
        _next = version + _DISTANCE
    set_version(x, version)
    return version
