"""bf16_linear as a plan."""

from __future__ import annotations

from torch import Tensor

from sdm_runtime import _core
from sdm_runtime.plan.plan import Plan

from .launch import device_kind, named_tactic, operand_refs
from .modes import Tactic, forced
from .rule import decide_shipped


def plan_bf16_linear(
    x: Tensor, weight: Tensor, y: Tensor, bias: Tensor | None = None, *, pdl: bool = False
) -> Plan:
    """Record ``y = x @ weight.T + bias`` as a plan of one step, for a Hopper GPU.

    The kernel is recorded whatever the decision rule says: with the tactic of ``forced_tactic``, of
    the rule where it takes the shape, or its default one. The plan may be bound to other tensors of
    the same shapes: the copy engine's descriptors, which embed addresses, are made when a plan is
    bound.

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
    refs = operand_refs(x, weight, bias, y)
    tactic = forced() or _measured(x, weight, pdl)
    bound = _core.plan_bf16_linear(*refs, None if tactic is None else tactic.for_core(), pdl)
    return Plan._recorded(bound, operands)


def _measured(x: Tensor, weight: Tensor, pdl: bool) -> Tactic | None:
    """The rule's tactic; None where it has none, and for operands that the core will refuse."""
    if not x.is_cuda or x.ndim != 2 or weight.ndim != 2:
        return None
    shape = (x.shape[0], weight.shape[0], x.shape[1])
    route = "static_weights" if pdl else "plain"
    point = decide_shipped(device_kind(x.get_device()), shape, route).point
    return None if point is None else named_tactic(point.tactic, point.splits)
