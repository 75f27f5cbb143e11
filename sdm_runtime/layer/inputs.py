"""Checks of a call's arguments, made before any work."""

from __future__ import annotations

import torch
from torch import Tensor

from sdm_runtime.layer.args import SparseDeltaMemoryArgs
from sdm_runtime.layer.cache import MemoryCache
from sdm_runtime.ops.autograd.autocast import autocast_is_on
from sdm_runtime.tensor.words import layout_word

_BANK_DTYPES = (torch.float32, torch.bfloat16)
_MAX_ROWS = 2**31 - 2  # the operation numbers rows in int32, and one value sorts behind


def check_inputs(
    args: SparseDeltaMemoryArgs,
    device: torch.device,
    weight: Tensor | None,
    x: Tensor,
    cache: MemoryCache | None,
) -> torch.dtype:
    """Refuse what the layer cannot run.

    Args:
        args: the layer's options.
        device: that of the layer's own parameters.
        weight: a projection's weight, for its dtype; None where only its call can tell.
        x: the layer's input.
        cache: the layer's cache or None.

    Returns:
        The dtype of the bank and of the output: that of `x`, or autocast's.

    Raises:
        TypeError: a wrong type or dtype.
        ValueError: a wrong shape or device, or a bank of more than 2^31 - 2 rows.
    """
    _check_x(args, device, x)
    _check_dtype(weight, x)
    if cache is not None:
        _check_cache(args, x, cache)
    return _compute_dtype(x)


def _compute_dtype(x: Tensor) -> torch.dtype:
    if autocast_is_on(x.device.type):
        return torch.get_autocast_dtype(x.device.type)
    return x.dtype


def _check_cache(args: SparseDeltaMemoryArgs, x: Tensor, cache: MemoryCache) -> None:
    if not isinstance(cache, MemoryCache):
        raise TypeError(_message("cache", "MemoryCache or None", type(cache).__name__))
    rows = x.shape[0] * args.num_heads * args.slots_per_head
    bank = cache.bank_for_call()
    expected = f"a bank [{rows}, {args.head_dim}] on {x.device}"
    if tuple(bank.shape) != (rows, args.head_dim) or bank.device != x.device:
        raise ValueError(_message("cache", expected, f"{list(bank.shape)} on {bank.device}"))


def _check_x(args: SparseDeltaMemoryArgs, device: torch.device, x: Tensor) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(_message("x", "a tensor", type(x).__name__))
    if layout := layout_word(x):
        raise TypeError(_message("x", "a dense tensor", layout))
    if x.dim() != 3 or x.shape[-1] != args.dim:
        raise ValueError(_message("x", f"[B, T, {args.dim}]", list(x.shape)))
    if x.device != device:
        raise ValueError(_message("x", f"a tensor on {device}", f"one on {x.device}"))
    if x.device.type not in ("cpu", "cuda", "meta"):
        raise ValueError(
            _message("x", "a CPU or CUDA tensor, or one on meta", f"one on {x.device}")
        )
    rows = x.shape[0] * args.num_heads * args.slots_per_head
    if rows > _MAX_ROWS:
        expected = f"B * num_heads * slots_per_head of at most {_MAX_ROWS}"
        raise ValueError(_message("x", expected, f"{list(x.shape)} for {rows} rows"))


def _check_dtype(weight: Tensor | None, x: Tensor) -> None:
    if autocast_is_on(x.device.type):
        if _compute_dtype(x) not in _BANK_DTYPES:
            raise TypeError(_message("autocast", "bfloat16 or float32", _compute_dtype(x)))
        return
    if weight is not None and x.dtype != weight.dtype:
        expected = f"the weights' dtype {weight.dtype}, one of float32 and bfloat16"
        raise TypeError(_message("x", expected, x.dtype))
    if x.dtype not in _BANK_DTYPES:
        raise TypeError(_message("x", "one of float32 and bfloat16", x.dtype))


def _message(name: str, expected: str, given: object) -> str:
    return f"[SparseDeltaMemory] {name}: expected {expected}, got {given}"
