"""What the GPU tests of bf16_linear share: where they run, and the kernel with every tactic."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from sdm_runtime import _core
from sdm_runtime.linear import forced_tactic
from sdm_runtime.linear.launch import device_kind, operand_refs, tactics
from sdm_runtime.linear.modes import Tactic
from sdm_runtime.tensor.refs import current_stream, tensor_ref


def _missing() -> str:
    if not torch.cuda.is_available():
        return "no CUDA device"
    if reason := _core.cuda_unavailable():
        return str(reason)
    if device_kind(torch.cuda.current_device())[:2] != (9, 0):
        return "the kernel needs compute capability 9.0"
    return ""


ON_HOPPER = pytest.mark.skipif(bool(_missing()), reason=_missing())


def choices() -> Iterator[Tactic]:
    """Every tactic with every number of splits that it can have."""
    for index, row in enumerate(tactics()):
        for splits in row["splits"]:
            yield Tactic(index, splits)


def name(tactic: Tactic) -> str:
    """For the ids of parametrized tests."""
    return f"{tactics()[tactic.index]['entry'].removeprefix('bf16_linear_')}_x{tactic.splits}"


def forced(tactic: Tactic):
    """The context in which bf16_linear runs with this tactic."""
    return forced_tactic(tactic.index, tactic.splits)


def run_into(y, x, weight, bias, tactic: Tactic, *, pdl: bool = False) -> None:
    """The kernel, with the output given."""
    refs = operand_refs(x, weight, bias, y)
    _core.bf16_linear(*refs, tactic.for_core(), pdl, current_stream(y.device))


def group_choices() -> Iterator[Tactic]:
    """The tactics that groups have, with every number of splits."""
    for index in _core.bf16_linear_group_tactics():
        for splits in tactics()[index]["splits"]:
            yield Tactic(index, splits)


def run_group_into(ys, x, weights, biases, tactic: Tactic | None, *, pdl: bool = False) -> None:
    """One launch for all weights, with the outputs given."""
    refs = (
        tensor_ref("x", x),
        [tensor_ref("weight", weight) for weight in weights],
        [None if bias is None else tensor_ref("bias", bias) for bias in biases],
        [tensor_ref("y", y) for y in ys],
    )
    choice = None if tactic is None else tactic.for_core()
    _core.bf16_linear_group(*refs, choice, pdl, current_stream(x.device))


def captured(work):
    """A CUDA graph of ``work()``, not yet replayed, and what it returned."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()  # loads the kernels, which a capture must not
        torch.cuda.synchronize()
        graph.capture_begin()
        result = work()
        graph.capture_end()
    return graph, result
