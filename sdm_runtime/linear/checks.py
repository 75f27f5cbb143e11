"""The arguments of bf16_linear: what is a mistake, and what only the library serves."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import forward_ad

from sdm_runtime.tensor.transforms import has_tangent
from sdm_runtime.tensor.words import describe, dtype_word, layout_word


@dataclass(frozen=True)
class Rows:
    """x as M rows of K values, ``stride`` elements apart."""

    count: int
    stride: int


def _mistake(argument: str, expected: str, given: str) -> str:
    return f"[bf16_linear] {argument}: expected {expected}, got {given}"


def check_dense(x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Raise TypeError for what torch's dispatcher would refuse without naming the argument."""
    given = {"x": x, "weight": weight} | ({} if bias is None else {"bias": bias})
    for name, tensor in given.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(_mistake(name, "a torch.Tensor", type(tensor).__name__))
        if layout := layout_word(tensor):
            raise TypeError(_mistake(name, "a dense tensor", layout))


def check_context(x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Refuse what a call would otherwise drop or change without a word.

    Raises:
        TypeError: Autocast asks for another dtype, in which nothing here computes.
        ValueError: A tensor has a forward-mode tangent.
    """
    kind = x.device.type
    if kind in ("cpu", "cuda") and torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        if dtype != torch.bfloat16:
            raise TypeError(_mistake("autocast", "bfloat16", dtype_word(dtype)))
    if forward_ad._current_level >= 0:
        for name, tensor in (("x", x), ("weight", weight), ("bias", bias)):
            if tensor is not None and has_tangent(tensor):
                expected = "no tangent (there is no forward-mode derivative)"
                raise ValueError(_mistake(name, expected, "one"))


def check(x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Raise for a caller's mistake.

    Raises:
        TypeError: A tensor that is not bfloat16.
        ValueError: Shapes that do not fit, or tensors on different devices.
    """
    given = {"x": x, "weight": weight} | ({} if bias is None else {"bias": bias})
    for name, tensor in given.items():
        if tensor.dtype != torch.bfloat16:
            raise TypeError(_mistake(name, "a bfloat16 tensor", describe(tensor)))
    if weight.ndim != 2:
        raise ValueError(_mistake("weight", "bfloat16 [N, K]", describe(weight)))
    n, k = weight.shape
    if x.ndim < 1 or x.shape[-1] != k:
        raise ValueError(_mistake("x", f"bfloat16 [..., {k}]", describe(x)))
    if bias is not None and bias.shape != (n,):
        raise ValueError(_mistake("bias", f"bfloat16 [{n}]", describe(bias)))
    for name, tensor in given.items():
        if tensor.device != x.device:
            raise ValueError(_mistake(name, f"a tensor on {x.device}", f"one on {tensor.device}"))


def as_rows(x: Tensor) -> Rows | None:
    """x [..., K] as evenly spaced rows; None when its leading dims need a copy for that."""
    count, stride = 1, 0
    for size, step in zip(reversed(x.shape[:-1]), reversed(x.stride()[:-1]), strict=True):
        if size == 1:
            continue
        if count == 1:
            stride = step
        elif step != stride * count:
            return None
        count *= size
    return Rows(count, stride if count > 1 else int(x.shape[-1]))


def _row_problem(name: str, tensor: Tensor, rows: Rows | None) -> str | None:
    k = tensor.shape[-1]
    if k > 1 and tensor.stride(-1) != 1:
        return f"{name} is not K-major (stride {tensor.stride(-1)} along K)"
    if rows is None:
        return f"{name}'s rows are not evenly spaced"
    if rows.stride % 8 or (rows.count > 1 and rows.stride < k):
        return f"{name}'s rows do not start at multiples of 16 bytes (row stride {rows.stride})"
    return None


def unsupported(x: Tensor, weight: Tensor, bias: Tensor | None) -> str | None:
    """Why the kernel cannot take these (checked) operands, or None; looks at no address."""
    n, k = weight.shape
    if x.numel() == 0 or weight.numel() == 0:
        return "empty operands"
    if k % 8:
        return f"K = {k} is not a multiple of 8 (rows of 16-byte pieces)"
    if bias is not None and bias.stride(0) != 1 and n > 1:
        return "bias is not contiguous"
    weight_rows = Rows(n, weight.stride(0) if n > 1 else k)
    return _row_problem("x", x, as_rows(x)) or _row_problem("weight", weight, weight_rows)


def misaligned(x: Tensor, weight: Tensor) -> str | None:
    """Why the operands' addresses do not suit the kernel, or None."""
    for name, tensor in (("x", x), ("weight", weight)):
        if tensor.data_ptr() % 16:
            return f"{name}'s address is not a multiple of 16"
    return None
