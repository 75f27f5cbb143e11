"""The inputs and outputs of a captured step: what is copied, what stays, and what is refused.

A graph reads and writes fixed memory. So every tensor among the inputs has a private copy, in which
the step works, and every tensor among the outputs is copied out; anything else is part of the
graph. Containers are torch's pytrees: tuples, lists, dicts, named tuples, deques, and what is
registered with ``torch.utils._pytree``. A tensor in anything else would be missed.
"""

from __future__ import annotations

import copy
from collections import UserDict, UserList, deque
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import chain
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy
import torch
from torch.utils import _pytree as pytree

from sdm_runtime.tensor.words import describe

_REGISTER = "pass its tensors in tuples, lists or dicts, or register it (torch.utils._pytree)"
# Known by identity; their tensors are tensors from outside, which stay where they are.
_WHOLE = (torch.nn.Module, torch.optim.Optimizer)
_CHANGING = (set, bytearray, numpy.ndarray)  # plain values that may be changed in place
_NO_CONTAINERS = (
    *(str, bytes, bytearray, int, float, complex, type, type(None)),
    *(FunctionType, BuiltinFunctionType, MethodType, ModuleType),
)


class CapturedInputs:
    """The step's own inputs, made from those of its capture."""

    def __init__(self, where: str, examples: tuple[Any, ...]):
        """Raises TypeError, starting with ``where``, for a container that hides tensors."""
        self._where = where
        self._trees = [_Tree(value) for value in examples]
        self.paths = [
            f"input {index}{pytree.keystr(path)}"
            for index, tree in enumerate(self._trees)
            for path in tree.paths
        ]
        given = [leaf for tree in self._trees for leaf in tree.leaves]
        for path, leaf in zip(self.paths, given, strict=True):
            if holds_tensors(leaf) and not isinstance(leaf, torch.Tensor):
                raise TypeError(
                    f"{where} {path}: expected tensors, plain values and containers of them, got a "
                    f"{type(leaf).__name__} that holds tensors: {_REGISTER}"
                )
        self.leaves = [_private(leaf) for leaf in given]
        self._versions: list[int] = []
        self._written: list[int] = []

    def arguments(self) -> tuple[Any, ...]:
        """What the step is called with."""
        leaves = iter(self.leaves)
        return tuple(tree.rebuilt(leaves) for tree in self._trees)

    def before_capture(self) -> None:
        """The captured run begins."""
        self._versions = [_version(leaf) for leaf in self.leaves]

    def after_capture(self) -> None:
        """The captured run has ended: what it has written, every replay writes."""
        after = [_version(leaf) for leaf in self.leaves]
        versions = enumerate(zip(self._versions, after, strict=True))
        self._written = [index for index, (before, now) in versions if before != now]

    def leaves_of(self, given: tuple[Any, ...]) -> list[Any]:
        """Take new inputs. Raises TypeError or ValueError where they differ from those captured."""
        if len(given) != len(self._trees):
            raise TypeError(
                f"{self._where} expected the {len(self._trees)} inputs it was captured with, "
                f"got {len(given)}"
            )
        leaves: list[Any] = []
        for index, (tree, value) in enumerate(zip(self._trees, given, strict=True)):
            found = _Tree(value)
            if found.spec != tree.spec:
                raise TypeError(
                    f"{self._where} input {index}: expected {tree.text()}, got {found.text()}"
                )
            leaves += found.leaves
        for path, mine, leaf in zip(self.paths, self.leaves, leaves, strict=True):
            _expect_like(f"{self._where} {path}:", mine, leaf)
        for index in self._written:
            if _shares_elements(leaves[index]):
                raise ValueError(
                    f"{self._where} {self.paths[index]}: expected a tensor whose elements have "
                    "memory of their own, since the step writes it, got an expanded one"
                )
        return leaves

    def copy_in(self, given: list[Any]) -> None:
        """Before a replay."""
        for mine, leaf in zip(self.leaves, given, strict=True):
            if isinstance(mine, torch.Tensor) and mine is not leaf:
                mine.copy_(leaf)

    def write_back(self, given: list[Any]) -> None:
        """After a replay: what the step has written in place."""
        for index in self._written:
            if given[index] is not self.leaves[index]:
                given[index].copy_(self.leaves[index])


def check_outputs(where: str, outputs: Any) -> None:
    """Raises TypeError for a container that hides tensors, which could not be copied out."""
    for leaf in pytree.tree_leaves(outputs):
        if holds_tensors(leaf) and not isinstance(leaf, torch.Tensor):
            raise TypeError(
                f"{where} fn: expected to return tensors, plain values and containers of them, "
                f"got a {type(leaf).__name__} that holds tensors: {_REGISTER}"
            )


def copied_out(outputs: Any) -> Any:
    """The outputs with a copy of every tensor."""
    return pytree.tree_map_only(torch.Tensor, lambda x: x.detach().clone(), outputs)


def holds_tensors(value: Any) -> bool:
    """Whether there is a tensor in a value, however deep; modules and optimizers have none here."""
    return _holds(value, set())


def _holds(value: Any, seen: set[int]) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, (*_NO_CONTAINERS, *_WHOLE)) or id(value) in seen:
        return False
    seen.add(id(value))
    return any(_holds(part, seen) for part in _parts(value))


def _parts(value: Any) -> Iterator[Any]:
    """What a container holds, and the attributes of an object."""
    if isinstance(value, (Mapping, UserDict)):
        yield from chain(value.keys(), value.values())
    elif isinstance(value, (tuple, list, AbstractSet, deque, UserList)):
        yield from value
    elif isinstance(value, numpy.ndarray) and value.dtype == object:
        yield from value.flat
    yield from getattr(value, "__dict__", {}).values()
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("__") and hasattr(value, name):
                yield getattr(value, name)


class _Tree:
    """One input, flattened."""

    def __init__(self, value: Any):
        named, self.spec = pytree.tree_flatten_with_path(value)
        self.paths = [path for path, _ in named]
        self.leaves = [leaf for _, leaf in named]

    def rebuilt(self, leaves: Iterator[Any]) -> Any:
        """The input with the next leaves in place of its own."""
        mine = [next(leaves) for _ in self.paths]
        return pytree.tree_unflatten(mine, self.spec)

    def text(self) -> str:
        """The structure, each leaf a star."""
        if not self.spec.is_leaf():
            return f"a {self.spec}".replace("\n", "")
        leaf = self.leaves[0]
        return "a tensor" if isinstance(leaf, torch.Tensor) else f"a {type(leaf).__name__}"


def _version(leaf: Any) -> int:
    return leaf._version if isinstance(leaf, torch.Tensor) and not leaf.is_inference() else 0


def _private(value: Any) -> Any:
    """The step's own copy of an input; of what cannot change there need be none."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    return copy.copy(value) if isinstance(value, _CHANGING) else value


def _expect_like(where: str, mine: Any, given: Any) -> None:
    if not isinstance(mine, torch.Tensor):
        if not _same_value(mine, given):
            raise ValueError(
                f"{where} expected the captured value {mine!r}, got {given!r}: "
                "pass what changes as a tensor"
            )
        return
    if not isinstance(given, torch.Tensor):
        raise TypeError(f"{where} expected a tensor, got {type(given).__name__}")
    if (given.device, given.dtype, given.shape) != (mine.device, mine.dtype, mine.shape):
        raise ValueError(f"{where} expected {_describe(mine)}, got {_describe(given)}")


def _same_value(mine: Any, given: Any) -> bool:
    """Whether a step that was captured with one computes the same with the other."""
    if mine is given:
        return True
    if type(given) is not type(mine):
        return False
    if isinstance(mine, (float, complex)):  # NaN is NaN, and 0 is not -0
        return repr(mine) == repr(given)
    if isinstance(mine, numpy.ndarray):
        alike = (mine.dtype, mine.shape) == (given.dtype, given.shape)
        return bool(alike) and bool(mine.tobytes() == given.tobytes())
    return bool(given == mine)


def _shares_elements(tensor: torch.Tensor) -> bool:
    """Whether an expanded dimension makes several elements share memory."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return any(size > 1 and stride == 0 for size, stride in sizes)


def _describe(tensor: torch.Tensor) -> str:
    return f"{describe(tensor)} on {tensor.device}"
