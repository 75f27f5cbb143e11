"""Tensors as messages put them."""

from __future__ import annotations

import torch


def dtype_word(dtype: torch.dtype) -> str:
    """``"float32"``."""
    return str(dtype).removeprefix("torch.")


def describe(tensor: torch.Tensor) -> str:
    """``"float32 [2, 3]"``."""
    return f"{dtype_word(tensor.dtype)} {list(tensor.shape)}"


def layout_word(tensor: torch.Tensor) -> str | None:
    """The layout of what is not dense, as ``"nested"`` or ``"sparse_coo"``; else None."""
    if tensor.is_nested:
        return "nested"
    if tensor.layout is not torch.strided:
        return str(tensor.layout).removeprefix("torch.")
    return None
