"""Tensors of one allocation: making each costs the host, and reading each for the core does.

A backward has its chain's first launch to wait for: what that launch needs is allocated and read
here at once, and what only the core and later kernels need becomes a tensor when it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime import _core
from sdm_runtime.tensor.dtypes import DTYPE_CODES

_WORD = torch.int64  # of the memory: a view of it may have any dtype, and no hook rounds integers


class Part(NamedTuple):
    """A contiguous tensor of an arena."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    operand: bool = True  # False: no plan of a chain has it
    over: str | None = None  # the part before it that it is another name and shape of


class ArenaLayout:
    """Where the parts lie: in order, each at a multiple of ``alignment`` bytes from the start.

    A part may lie over an earlier one: what one plan of a chain calls ``y`` and the next one ``x``.
    """

    def __init__(self, parts: Sequence[Part], *, alignment: int):
        """Place them."""
        self._places: dict[str, tuple[Part, int]] = {}  # with the first byte
        end = 0
        for part in parts:
            size = prod(part.shape) * part.dtype.itemsize
            if part.over is None:
                first = -(-end // alignment) * alignment
                end = first + size
            else:
                below, first = self._places[part.over]
                assert size <= prod(below.shape) * below.dtype.itemsize, (part, below)
            self._places[part.name] = part, first
        self._strides = {p.name: _contiguous_strides(p.shape) for p in parts}
        self.words = -(-end // _WORD.itemsize)
        self.operands = tuple(part.name for part in parts if part.operand)
        read = [
            (name, int(DTYPE_CODES[part.dtype]), part.shape, first)
            for name, (part, first) in self._places.items()
            if part.operand
        ]
        if not isinstance(self.words, torch.SymInt):  # a tracer's sizes: nothing will be read
            self.core = _core.ArenaLayout(read, self.words * _WORD.itemsize)

    def place(self, name: str) -> tuple[Part, int] | None:
        """A part and its first byte; None for a name that is not there."""
        return self._places.get(name)

    def strides(self, name: str) -> tuple[int, ...]:
        """A part's, in elements."""
        return self._strides[name]

    def allocate(self, beside: Tensor) -> Arena:
        """Room for all of them on a tensor's device, not initialized."""
        return Arena(self, beside.new_empty(self.words, dtype=_WORD))


class Arena:
    """The parts in ``memory``, contiguous int64 ``[words]``."""

    __slots__ = ("_made", "_words", "layout", "memory")

    def __init__(self, layout: ArenaLayout, memory: Tensor):
        """Nothing is made of the memory yet."""
        self.layout, self.memory = layout, memory
        self._made: dict[str, Tensor] = {}
        self._words: dict[torch.dtype, Tensor] = {}  # the memory as each dtype that was asked for

    def __getitem__(self, name: str) -> Tensor:
        """The part of this name, made when it is first asked for."""
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def get(self, name: str) -> Tensor | None:
        """The same; None for a name that is not there."""
        made = self._made.get(name)
        if made is not None:
            return made
        placed = self.layout.place(name)
        if placed is None:
            return None
        part, first = placed
        words = self._words.get(part.dtype)
        if words is None:
            words = self._words[part.dtype] = self.memory.view(part.dtype)
        # One view each: a call makes a dozen.
        offset = words.storage_offset() + first // part.dtype.itemsize
        made = self._made[name] = words.as_strided(part.shape, self.layout.strides(name), offset)
        return made

    def operands(self) -> dict[str, Tensor]:
        """The parts that plans use, by name."""
        return {name: self[name] for name in self.layout.operands}


def _contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
