"""One launch of the kernel, through the core."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime import _core
from sdm_runtime.machine.backends import device_profile
from sdm_runtime.tensor.refs import current_stream, tensor_ref

from .checks import as_rows
from .modes import Tactic


@lru_cache(maxsize=64)
def device_kind(index: int) -> tuple[int, int, int]:
    """Compute capability (major, minor) and SM count of a CUDA device.

    A Hopper that SDM_DEVICE_PROFILE makes run as another device is of that one's kind: the core
    would refuse it the kernel.
    """
    properties = torch.cuda.get_device_properties(index)
    if properties.major != 9:
        return properties.major, properties.minor, properties.multi_processor_count
    profile = device_profile(torch.device("cuda", index))
    return *profile.capability, profile.sm_count


@lru_cache(maxsize=1)
def tactics() -> tuple[_core._TacticRow, ...]:
    """The kernel's tactic table.

    Keys of a row: entry, rows, tokens, depth, stages, token_stages, sharers, shared_bytes, and
    splits: the numbers of blocks that can share an output tile's depth.
    """
    return tuple(_core.bf16_linear_tactics())


@lru_cache(maxsize=64)
def named_tactic(entry: str, splits: int) -> Tactic:
    """The tactic whose device function is ``entry``.

    Raises:
        ValueError: The table has none of this name, or it cannot have so many splits.
    """
    names = [tactic["entry"] for tactic in tactics()]
    if entry not in names:
        raise ValueError(f"[bf16_linear] tactic: expected one of {', '.join(names)}, got {entry}")
    index = names.index(entry)
    if splits not in (allowed := tactics()[index]["splits"]):
        words = ", ".join(map(str, allowed))
        raise ValueError(f"[bf16_linear] splits: expected one of {words} for {entry}, got {splits}")
    return Tactic(index, splits)


def pick(shape: tuple[int, int, int], sm_count: int) -> Tactic:
    """The default tactic for (M, N, K)."""
    return Tactic(*_core.bf16_linear_pick(*shape, sm_count))


def flat(x: Tensor) -> Tensor:
    """x [..., K] as [M, K], without a copy. Its rows must be evenly spaced."""
    rows = as_rows(x)
    assert rows is not None
    return x.as_strided((rows.count, x.shape[-1]), (rows.stride, 1))


class OperandRefs(NamedTuple):
    """The operands as the core takes them."""

    x: _core.TensorRef
    weight: _core.TensorRef
    bias: _core.TensorRef | None
    y: _core.TensorRef


def operand_refs(x: Tensor, weight: Tensor, bias: Tensor | None, y: Tensor) -> OperandRefs:
    """The operands as the core takes them; x and y are matrices."""
    bias_ref = None if bias is None else tensor_ref("bias", bias)
    return OperandRefs(
        tensor_ref("x", x), tensor_ref("weight", weight), bias_ref, tensor_ref("y", y)
    )


def launch(x: Tensor, weight: Tensor, bias: Tensor | None, tactic: Tactic, pdl: bool) -> Tensor:
    """Launch the kernel on torch's current stream; returns y [..., N]."""
    y = x.new_empty((*x.shape[:-1], weight.shape[0]))
    refs = operand_refs(flat(x), weight, bias, y.view(-1, weight.shape[0]))
    _core.bf16_linear(*refs, tactic.for_core(), pdl, current_stream(x.device))
    return y
