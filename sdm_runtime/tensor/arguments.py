"""Arguments of the step kernels as the core takes them; every refusal names kernel and argument."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import SupportsIndex

import torch

from sdm_runtime import _core
from sdm_runtime.tensor.refs import tensor_ref


def refs(kernel: str, operands: Mapping[str, torch.Tensor]) -> list[_core.TensorRef]:
    """References to the operands, in order. Raises as ``tensor_ref``."""
    return [tensor_ref(f"[{kernel}] {name}", tensor) for name, tensor in operands.items()]


def absent(tensor: torch.Tensor | None) -> bool:
    """Whether an optional operand is not there: None, or an empty tensor."""
    return tensor is None or (
        isinstance(tensor, torch.Tensor) and not tensor.is_nested and tensor.numel() == 0
    )


def whole(kernel: str, name: str, value: SupportsIndex) -> int:
    """A whole number that the core's int64 holds; its range is the launcher's to check.

    Raises:
        TypeError: ``value`` is a bool or not an integer.
        ValueError: It does not fit 64 bits.
    """
    if type(value) is int and -(1 << 63) <= value < 1 << 63:
        return value
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"[{kernel}] {name}: expected an int, got {value!r}")
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"[{kernel}] {name}: expected an int of 64 bits, got {number}")
    return number


def wholes(kernel: str, **values: SupportsIndex) -> tuple[int, ...]:
    """Several of :func:`whole`, by name, in order."""
    return tuple(whole(kernel, name, value) for name, value in values.items())


def word(kernel: str, name: str, value: str) -> str:
    """``value``, if it is a str: the launcher checks which one.

    Raises:
        TypeError: It is not a str.
        ValueError: It has lone surrogates, which the core cannot read.
    """
    if not isinstance(value, str):
        raise TypeError(f"[{kernel}] {name}: expected a str, got {value!r}")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError(f"[{kernel}] {name}: expected a text, got {value!r}")
    return value


def flag(kernel: str, name: str, value: bool) -> bool:
    """``value``. Raises TypeError when it is not a bool."""
    if not isinstance(value, bool):
        raise TypeError(f"[{kernel}] {name}: expected a bool, got {value!r}")
    return value
