"""Arguments that a launcher checks and no launch reads.

A binding takes them too, for callers who bind whatever they launched with. Their form is checked;
their memory is neither kept nor compared with that of the operands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from sdm_runtime.errors import PlanError
from sdm_runtime.tensor.arguments import absent
from sdm_runtime.tensor.refs import tensor_ref

# By kernel: the argument, and the operand whose 16-byte records begin with its words.
_WORDS = {"gx_pa2": ("kpay", "rec")}
_WORDS_OF_A_RECORD = 4


def unread_names(kernel: str) -> frozenset[str]:
    """The arguments that no launch of ``kernel`` reads."""
    return frozenset(_WORDS[kernel][:1] if kernel in _WORDS else ())


def check_words(kernel: str, words: Any, rec: Any) -> None:
    """Check the words that a launcher was given beside its records; None passes.

    Records that are not int32 ``[N, entries, 4]`` are for the launcher to refuse.

    Raises:
        TypeError, ValueError: The words are not int32 ``[N, entries]`` on the records' device.
    """
    if absent(words):
        return
    name, beside = _WORDS[kernel]
    ref = tensor_ref(f"[{kernel}] {name}", words)
    tensor_ref(f"[{kernel}] {beside}", rec)
    if not _is_record_list(rec):
        return
    expected = list(rec.shape[:2])
    if words.dtype != torch.int32 or list(words.shape) != expected:
        error = ValueError if words.dtype == torch.int32 else TypeError
        raise error(f"[{kernel}] {name}: expected int32 {expected}, got {ref}")
    if not words.is_contiguous():
        raise ValueError(f"[{kernel}] {name}: expected a contiguous tensor, got {ref}")
    if words.device != rec.device:
        raise ValueError(
            f"[{kernel}] {name}: expected a tensor on {rec.device}, got one on {words.device}"
        )


def without_unread(kernel: str, operands: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The operands without what no launch of ``kernel`` reads."""
    unread = unread_names(kernel)
    return {name: tensor for name, tensor in operands.items() if name not in unread}


def check_unread(kernel: str, operands: Mapping[str, torch.Tensor]) -> None:
    """Check what no launch of ``kernel`` reads, once the other operands are known to fit.

    Raises:
        TypeError, ValueError: It is not a tensor that a kernel takes.
        PlanError: It does not fit the operand that it belongs to.
    """
    name, beside = _WORDS.get(kernel, ("", ""))
    if name not in operands:
        return
    words, rec = operands[name], operands[beside]
    where = f"[{kernel}] bind {name}"
    ref = tensor_ref(where, words)
    if words.device != rec.device:
        raise PlanError(f"{where}: expected a tensor on {rec.device}, got {words.device}")
    expected = rec.nbytes // _WORDS_OF_A_RECORD
    if words.dtype != torch.int32 or not words.is_contiguous() or words.nbytes != expected:
        raise PlanError(f"{where}: expected contiguous int32 of {expected} bytes, got {ref}")


def _is_record_list(rec: torch.Tensor) -> bool:
    shaped = rec.dim() == 3 and rec.shape[2] == _WORDS_OF_A_RECORD
    return shaped and rec.dtype == torch.int32 and rec.is_contiguous()
