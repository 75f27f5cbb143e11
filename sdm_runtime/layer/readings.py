"""From the readings to the output projection's input, where no gradient is wanted."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime import _core
from sdm_runtime.plan.plan import Plan
from sdm_runtime.tensor.refs import operand_refs, plan_memory
from sdm_runtime.tensor.words import describe
from sdm_runtime.tensor.written import launch_stream


class ReadingsNorm(NamedTuple):
    """A LayerNorm over a head's columns."""

    weight: Tensor  # float32 or bfloat16 [hd]
    bias: Tensor  # likewise, of the same dtype
    eps: float


def merge_readings(
    readings: Tensor,
    dtype: torch.dtype,
    *,
    norm: ReadingsNorm | None = None,
    gate: Tensor | None = None,
) -> Tensor:
    """The heads' readings side by side, normalized by head, times ``sigmoid(gate)``: one launch.

    Rounded as the layer's own operations round: the readings to ``dtype``; the norm's result, made
    in float32, to its weights' dtype; the sigmoid to the gate's; the product to ``dtype``. The same
    bits on the CPU and a GPU.

    Args:
        readings: ``[B, T, H, hd]``, float32 or bfloat16, the last dimension contiguous.
        dtype: Of the result, float32 or bfloat16.
        norm: None for readings as they are.
        gate: ``[B, T, H*hd]``, float32 or bfloat16, the last dimension contiguous; before its
            sigmoid. None for no gate.

    Returns:
        ``[B, T, H*hd]`` of ``dtype``, contiguous, without a gradient.

    Raises:
        TypeError: A tensor that is not dense, or of another dtype.
        ValueError: Shapes that do not fit, tensors on different devices, or a gradient is wanted.
    """
    if readings.ndim != 4:
        expected = "float32 or bfloat16 [B, T, H, hd]"
        raise ValueError(
            f"[merge_readings] readings: expected {expected}, got {describe(readings)}"
        )
    batches, tokens, heads, columns = readings.shape
    merged = readings.new_empty((batches, tokens, heads * columns), dtype=dtype)
    operands = _operands(readings, merged, norm, gate)
    if torch.is_grad_enabled() and any(x.requires_grad for x in operands.values()):
        raise ValueError(
            "[merge_readings] readings, norm, gate: expected tensors that require no gradient, or "
            "torch.no_grad(), got some that do"
        )
    refs = operand_refs(operands, "[merge_readings] ")
    _core.merge_readings(refs, _eps(norm), launch_stream("merge_readings", readings.device))
    return merged


def plan_merge_readings(
    readings: Tensor,
    merged: Tensor,
    *,
    norm: ReadingsNorm | None = None,
    gate: Tensor | None = None,
    pdl: bool = False,
) -> Plan:
    """Record :func:`merge_readings` as a plan of one step.

    Its operands are called readings, merged, norm_weight, norm_bias and gate. Where readings or
    gate are not contiguous, the operand is their memory from the first element to the last, as one
    dimension.

    Args:
        readings: As for :func:`merge_readings`.
        merged: float32 or bfloat16 ``[B, T, H*hd]``, contiguous, out.
        norm: As for :func:`merge_readings`.
        gate: As for :func:`merge_readings`.
        pdl: Launch programmatically in a chain: nothing in it may write the norm's tensors.

    Raises:
        TypeError: A tensor that is not dense, or of another dtype.
        ValueError: Another shape, layout or device.
    """
    operands = _operands(readings, merged, norm, gate)
    refs = operand_refs(operands, "[merge_readings] ")
    bound = _core.plan_merge_readings(refs, _eps(norm), pdl)
    return Plan._recorded(bound, {name: plan_memory(x) for name, x in operands.items()})


def _operands(
    readings: Tensor, merged: Tensor, norm: ReadingsNorm | None, gate: Tensor | None
) -> dict[str, Tensor]:
    operands = {"readings": readings, "merged": merged}
    if norm is not None:
        operands |= {"norm_weight": norm.weight, "norm_bias": norm.bias}
    return operands if gate is None else operands | {"gate": gate}


def _eps(norm: ReadingsNorm | None) -> float:
    return 0.0 if norm is None else norm.eps
