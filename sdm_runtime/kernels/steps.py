"""Step kernels by name: they take what the core's tables say (csrc/kernels/step/*/*.cpp)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from sdm_runtime import _core
from sdm_runtime.format.plan_format import Access
from sdm_runtime.plan.plan import Plan
from sdm_runtime.tensor.arguments import absent, flag, refs, whole, word
from sdm_runtime.tensor.written import launch_stream, raise_versions


class StepTable(NamedTuple):
    """What callers of a step kernel give, besides the step or the steps."""

    operands: dict[str, bool]  # by name, in order: whether it may be missing
    written: frozenset[str]
    numbers: dict[str, bool]
    words: tuple[str, ...]  # all may be missing


@lru_cache(maxsize=1)
def step_tables() -> dict[str, StepTable]:
    """The step kernels by name."""
    return {
        kernel: StepTable(
            {name: optional for name, _, optional in operands},
            frozenset(name for name, access, _ in operands if access & Access.WRITE),
            dict(numbers),
            tuple(words),
        )
        for kernel, (operands, numbers, words) in _core.step_tables().items()
    }


def run_step(kernel: str, arguments: Mapping[str, Any]) -> None:
    """Run one step now; ``arguments`` are the kernel's operands and numbers, and ``ti``."""
    numbers, ti = _numbers(kernel, arguments), whole(kernel, "ti", arguments["ti"])
    operands = _operands(kernel, arguments)
    read = _refs(kernel, operands)
    stream = launch_stream(kernel, next(iter(operands.values())).device)
    _core.run_step(kernel, read, numbers, _words(kernel, arguments), ti, stream)
    written = step_tables()[kernel].written
    raise_versions([tensor for name, tensor in operands.items() if name in written])


def plan_step(kernel: str, arguments: Mapping[str, Any]) -> Plan:
    """Record the steps ``0..steps-1``; of ``arguments`` it takes what is the kernel's.

    They are its operands and numbers, ``steps`` and ``pdl``, which asks for programmatic launch.
    """
    numbers, steps = _numbers(kernel, arguments), whole(kernel, "steps", arguments["steps"])
    operands = _operands(kernel, arguments)
    read = _refs(kernel, operands)
    pdl = flag(kernel, "pdl", arguments["pdl"])
    words = _words(kernel, arguments)
    return Plan._recorded(_core.record_step(kernel, read, numbers, words, steps, pdl), operands)


def _numbers(kernel: str, arguments: Mapping[str, Any]) -> list[tuple[str, int]]:
    return [
        (name, whole(kernel, name, arguments[name]))
        for name, optional in step_tables()[kernel].numbers.items()
        if not (optional and arguments.get(name) is None)
    ]


def _words(kernel: str, arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (name, word(kernel, name, arguments[name]))
        for name in step_tables()[kernel].words
        if arguments.get(name) is not None
    ]


def _operands(kernel: str, arguments: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {
        name: arguments[name]
        for name, optional in step_tables()[kernel].operands.items()
        if not (optional and absent(arguments.get(name)))
    }


def _refs(kernel: str, operands: Mapping[str, torch.Tensor]) -> list[tuple[str, _core.TensorRef]]:
    return list(zip(operands, refs(kernel, operands), strict=True))
