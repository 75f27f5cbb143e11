"""bf16_linear as a plan."""

from __future__ import annotations

from torch import Tensor

from sdm_runtime import _core
from sdm_runtime.plans import Plan

from .launch import operand_refs
from .modes import forced


def plan_bf16_linear(
    x: Tensor, weight: Tensor, y: Tensor, bias: Tensor | None = None, *, pdl: bool = False
) -> Plan:
    """Record ``y = x @ weight.T + bias`` as a plan of one step, for a Hopper GPU.

    The kernel is recorded whatever the decision rule says, with its default tactic or that of
    ``forced_tactic``. The plan may be bound to other tensors of the same shapes: the copy engine's
    descriptors, which embed addresses, are made when a plan is bound.

    Args:
        x: bfloat16 ``[M, K]``, contiguous, on a 16-byte boundary; K a multiple of 8.
        weight: bfloat16 ``[N, K]``, likewise.
        y: bfloat16 ``[M, N]``, out.
        bias: bfloat16 ``[N]``.
        pdl: Launch programmatically in a chain: nothing in it may write ``weight``.

    Raises:
        TypeError: A tensor that is not bfloat16.
        ValueError: Another shape, layout or device.
    """
    operands = {"x": x, "weight": weight, "y": y} | ({} if bias is None else {"bias": bias})
    asked = forced()
    choice = None if asked is None else asked.for_core()
    bound = _core.plan_bf16_linear(*operand_refs(x, weight, bias, y), choice, pdl)
    return Plan._recorded(bound, operands)
