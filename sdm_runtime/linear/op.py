"""The operation: a torch custom op that runs the kernel or F.linear."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from sdm_runtime import _core
from sdm_runtime.dispatch import Dispatch, record

from . import rule
from .checks import as_rows, check, check_context, check_dense, misaligned, unsupported
from .launch import device_kind, launch, named_tactic, tactics
from .modes import Tactic, forced, weights_are_static


def bf16_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias`` in bfloat16 with float32 sums; the bias is added before the rounding.

    On a Hopper GPU and a shape where it was measured to be at least 5% faster (``rule.py``), a
    kernel for few rows runs; anywhere else ``torch.nn.functional.linear`` does, and
    ``sdm_runtime.last_dispatch()`` says which and why. The library also serves operands that are
    not K-major (stride 1 along K) or whose rows do not start at multiples of 16 bytes, and K that
    is not a multiple of 8. Within a tactic of the kernel a row's bits depend neither on the other
    rows nor on their number. Differentiable; capturable; works under torch.compile and,
    to bfloat16, autocast.

    Args:
        x: bfloat16 ``[..., K]``.
        weight: bfloat16 ``[N, K]``.
        bias: bfloat16 ``[N]``.

    Returns:
        bfloat16 ``[..., N]``.

    Raises:
        TypeError: A tensor that is not dense, or not bfloat16 (outside autocast); autocast to
            another dtype.
        ValueError: Shapes that do not fit, tensors on different devices, or one with a
            forward-mode tangent.
    """
    check_dense(x, weight, bias)
    check_context(x, weight, bias)
    result: Tensor = _bf16_linear(x, weight, bias)
    return result


def kernel_serves(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """Whether :func:`bf16_linear` would run its kernel on these operands, here and now.

    For callers who have another way to call the library. Takes no part in torch.compile.

    Raises:
        TypeError, ValueError: As bf16_linear.
    """
    check(x, weight, bias)
    return _decide(x, weight, bias).tactic is not None


@torch.library.custom_op("sdm_runtime::bf16_linear", mutates_args=())
def _bf16_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    check(x, weight, bias)
    choice = _decide(x, weight, bias)
    if choice.tactic is None:
        y = F.linear(x, weight, bias).contiguous()
    else:
        y = launch(x, weight, bias, choice.tactic, choice.pdl)
    _record(x, choice)
    return y


@_bf16_linear.register_fake
def _fake(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    check(x, weight, bias)
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


class _Choice(NamedTuple):
    """What serves a call: the kernel with a tactic, or with None F.linear."""

    reason: str
    tactic: Tactic | None = None
    pdl: bool = False


def _decide(x: Tensor, weight: Tensor, bias: Tensor | None) -> _Choice:
    asked, static = forced(), weights_are_static()
    refusal = _refusal(x, weight, bias)
    if asked is not None:
        if refusal is None and (kind := device_kind(x.get_device()))[0] != 9:
            refusal = f"compute capability {kind[0]}.{kind[1]}"
        if refusal is not None:
            raise ValueError(f"[bf16_linear] forced tactic: the kernel cannot run: {refusal}")
        return _Choice("forced", asked, static)
    if refusal is not None:
        return _Choice(refusal)
    return _by_rule(device_kind(x.get_device()), _shape(x, weight), static)


def _by_rule(kind: tuple[int, int, int], shape: tuple[int, int, int], static: bool) -> _Choice:
    """Static weights allow programmatic launches; where only ordinary ones win, those are used."""
    decision = rule.Decision("")
    for route in ("static_weights", "plain") if static else ("plain",):
        decision = rule.decide_shipped(kind, shape, route)
        if decision.point is not None:
            tactic = named_tactic(decision.point.tactic, decision.point.splits)
            return _Choice(decision.reason, tactic, route == "static_weights")
    return _Choice(decision.reason)


def _shape(x: Tensor, weight: Tensor) -> tuple[int, int, int]:
    rows = as_rows(x)
    assert rows is not None
    return rows.count, weight.shape[0], weight.shape[1]


def _refusal(x: Tensor, weight: Tensor, bias: Tensor | None) -> str | None:
    """Why the kernel cannot take the operands, whatever the rule says."""
    if not x.is_cuda:
        return f"the tensors are on {x.device.type}"
    reason = _core.cuda_unavailable() or unsupported(x, weight, bias) or misaligned(x, weight)
    return str(reason) if reason else None


def _record(x: Tensor, choice: _Choice) -> None:
    library = choice.tactic is None
    geometry = {}
    if choice.tactic is not None:
        entry = tactics()[choice.tactic.index]["entry"]
        geometry = {"tactic": entry, "splits": choice.tactic.splits}
    record(
        Dispatch(
            op="bf16_linear",
            route="library" if library else "kernel",
            backend="cuda" if x.is_cuda else "host",
            gemm="F.linear" if library else "bf16_linear",
            gemm_reason=choice.reason,
            pdl=choice.pdl,
            geometry=geometry,
            launches=0 if library else 1,
        )
    )


def _setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    x, weight = ctx.saved_tensors
    needs_x, needs_weight, needs_bias = ctx.needs_input_grad
    rows = grad.reshape(-1, grad.shape[-1])
    grad_x = (grad @ weight) if needs_x else None
    grad_weight = (rows.t() @ x.reshape(-1, x.shape[-1])) if needs_weight else None
    grad_bias = rows.sum(0) if needs_bias else None
    return grad_x, grad_weight, grad_bias


_bf16_linear.register_autograd(_backward, setup_context=_setup_context)
for _device_type in ("cpu", "cuda"):
    _bf16_linear.register_autocast(_device_type, torch.bfloat16)
