"""Slots outside their sequence, where a call cannot wait to find them: a flag that a device sets.

A kernel that meets such a slot leaves its entry out and stores a word into pinned memory, which the
host reads without waiting. The next call on the device that may raise does, and clears the flag.
"""

from __future__ import annotations

import ctypes
import threading
import warnings

import torch
from torch import Tensor

from sdm_runtime.tensor.refs import capturing

_ARGUMENTS = ("k_idx", "q_idx")  # of the flag's words
_MOST = 2**31 - 1  # a word has room for an int32, and for no value beyond


class OutsideFlag:
    """One device's flag: a word each for k_idx and q_idx, 0 until a slot is outside."""

    def __init__(self, words: Tensor) -> None:
        """Take int64 [2] in host memory that the device can write; they are cleared."""
        self.words = words  # an operand of kernels, and of captured graphs: it stays for ever
        # The host's view: a device writes behind the tensor's back.
        self._seen = (ctypes.c_int64 * len(_ARGUMENTS)).from_address(words.data_ptr())
        self.clear()

    @property
    def is_set(self) -> bool:
        """Whether a slot was outside since the flag was cleared."""
        return any(self._seen)

    def clear(self) -> None:
        """Forget what was seen."""
        for word in range(len(_ARGUMENTS)):
            self._seen[word] = 0

    def take(self) -> dict[str, str]:
        """What was seen, in words by argument; the flag is cleared."""
        words = dict(zip(_ARGUMENTS, self._seen, strict=True))
        self.clear()
        return {name: _describe(word) for name, word in words.items() if word}


_flags: dict[int, OutsideFlag] = {}
_lock = threading.Lock()


def report_outside_slots(device: torch.device) -> None:
    """Raise what an earlier call on a CUDA device could not; make its flag if it has none.

    Inside a graph capture it does neither, since an error would end the capture; without a flag, it
    warns that the captured calls will not be able to report.

    Raises:
        ValueError: An earlier call, or the replay of a captured one, had slots outside.
    """
    flag = _flags.get(device.index)
    if flag is not None and not flag.is_set:
        return
    if capturing(device):
        if flag is None:
            warnings.warn(
                f"[sdm_write_read] memory: the first call on {device} is inside a graph capture, "
                "where no memory can be pinned: replays leave slots outside their sequence out, "
                "but cannot report them. Call the operation once before the capture",
                stacklevel=2,
            )
        return
    if flag is None:
        _make(device)
        return
    found = flag.take()
    if found:  # another thread may have taken it
        raise ValueError(
            f"[sdm_write_read] {', '.join(found)}: an earlier call (or the replay of a captured "
            f"one) on {device} had slots outside their sequence, {' and '.join(found.values())} "
            "among them; such entries did nothing. Set SDM_CHECK_INDICES=1 to find the call"
        )


def outside_words(device: torch.device) -> Tensor | None:
    """Where kernels on a device tell of slots outside; none if report_outside_slots made none."""
    flag = _flags.get(device.index) if device.type == "cuda" else None
    return None if flag is None else flag.words


def _make(device: torch.device) -> None:
    with _lock:
        if device.index not in _flags:
            _flags[device.index] = OutsideFlag(_pinned_words())


def _pinned_words() -> Tensor:
    """Under unified addressing every device can write it at the host's address."""
    with torch.inference_mode(False):
        return torch.zeros(len(_ARGUMENTS), dtype=torch.int64, device="cpu", pin_memory=True)


def _describe(word: int) -> str:
    """The kernels' outside_word(): the sequence from 1 on, above a value of 32 bits."""
    sequence = (word >> 32) - 1
    value = ctypes.c_int32(word & 0xFFFFFFFF).value
    beyond = {_MOST: " or above", -_MOST - 1: " or below"}.get(value, "")
    return f"row {value}{beyond} in sequence {sequence}"
