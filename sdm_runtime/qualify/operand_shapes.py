"""The operands of a backward's matrix products: checked once for each shape, then looked up."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor


class Facts(NamedTuple):
    """All of an operand but its address."""

    shape: torch.Size
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


class Sizes(NamedTuple):
    """P, C, hd."""

    sequences: int
    chunk: int
    head_dim: int

    @property
    def rows(self) -> tuple[int, int, int]:
        """The shape of a step's d_u and d_dv."""
        return (self.sequences, self.chunk, self.head_dim)

    @property
    def square(self) -> tuple[int, int, int]:
        """The shape of a step's x."""
        return (self.sequences, self.chunk, self.chunk)


class Shape(NamedTuple):
    """What the library is called with, but for the addresses and the number of steps."""

    sizes: Sizes
    dtypes: tuple[torch.dtype, ...]
    strides: tuple[tuple[int, ...], ...]  # of a step's views of d_u, x and d_dv


@lru_cache(maxsize=1024)
def step_shape(sizes: Sizes) -> Shape:
    """The shape of contiguous float32 operands, as an operation's own are."""
    (_, chunk, hd), float32 = sizes, torch.float32
    by_row, by_square = (chunk * hd, hd, 1), (chunk * chunk, chunk, 1)
    return Shape(sizes, (float32, float32, float32), (by_row, by_square, by_row))


def facts(operand: Tensor) -> Facts:
    """Of one operand."""
    return Facts(operand.shape, operand.stride(), operand.dtype, operand.device)


@lru_cache(maxsize=1024)
def checked_shape(d_u: Facts, x: Facts, d_dv: Facts, num_parallel: int) -> Shape:
    """The shape of operands of whole steps, contiguous, on one device.

    Raises:
        ValueError: They are not; the message names the operand.
    """
    operands = {"d_u": d_u, "x": x, "d_dv": d_dv}
    for name, operand in operands.items():
        if operand.dtype is not torch.float32:
            raise _wrong(name, "float32", operand.dtype)
        if operand.device != d_u.device:
            raise _wrong(name, f"a tensor on {d_u.device}", operand.device)
    if len(d_u.shape) != 3:
        raise _wrong("d_u", "[N, C, hd]", list(d_u.shape))
    count, chunk, hd = d_u.shape
    if x.shape != (count, chunk, chunk):
        raise _wrong("x", [count, chunk, chunk], list(x.shape))
    flat, by_chunk = (count * chunk, hd), (count, chunk, hd)
    if d_dv.shape not in (flat, by_chunk):
        raise _wrong("d_dv", f"{list(flat)} or {list(by_chunk)}", list(d_dv.shape))
    for name, operand in operands.items():
        like = torch.empty_strided(operand.shape, operand.strides, device="meta")
        if not like.is_contiguous():
            raise _wrong(name, "a contiguous tensor", f"strides {operand.strides}")
    if num_parallel < 1 or count < num_parallel or count % num_parallel:
        raise _wrong("num_parallel", f"a divisor of N = {count}", num_parallel)
    return step_shape(Sizes(num_parallel, chunk, hd))


def _wrong(name: str, expected: object, given: object) -> ValueError:
    return ValueError(f"[matches_blas] {name}: expected {expected}, got {given}")
