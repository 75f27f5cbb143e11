"""Whether a tensor that saved-tensor hooks have had is, bit for bit, the one that they were given.

The bits of a call's records are addresses to the kernels, and the snapshot's are what a backward
calls the bank before the call: neither is taken on trust.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.tensor.storages import ByStorage

_BLOCK = 1 << 20  # words that are summed at once
_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)  # odd: no bit of a word is lost


def fingerprint(x: Tensor) -> Tensor:
    """A sum over the bits of a tensor, weighted by place: int64 [], on its device.

    Of a contiguous tensor; any single change shows, and others with near certainty.
    """
    words = _words(x)
    weights = torch.arange(1, 2 * min(_BLOCK, len(words)) + 1, 2, device=x.device) * _FACTOR
    total = torch.zeros((), dtype=torch.int64, device=x.device)
    for first in range(0, len(words), _BLOCK):
        block = words[first : first + _BLOCK].long()
        total = total * _FACTOR + (block * weights[: len(block)]).sum()
    return total


def _words(x: Tensor) -> Tensor:
    flat = x.detach().contiguous().view(-1).view(torch.uint8)
    wide = (torch.int64, torch.int32, torch.int16, torch.uint8)
    dtype = next(dtype for dtype in wide if flat.numel() % dtype.itemsize == 0)
    return (flat if flat.data_ptr() % dtype.itemsize == 0 else flat.clone()).view(dtype)


class _Own(NamedTuple):
    version: int
    kind: object


_own: ByStorage[_Own] = ByStorage()


def remember_own(x: Tensor, kind: object) -> None:
    """Note that a forward of ours has written x, which has all of its storage."""
    _own.keep(x, _Own(x._version, kind))


def is_own(x: Tensor, kind: object) -> bool:
    """Whether a forward of this kind wrote x, which nobody has written since.

    So is what a checkpoint's second forward has made.
    """
    own = _own.find(x)
    whole = x.storage_offset() == 0 and x.nbytes == x.untyped_storage().nbytes()
    return own is not None and whole and own == (x._version, kind)
