"""A token's gates: how strongly it writes, and how far what it writes has decayed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from sdm_runtime import _core
from sdm_runtime.plan.plan import Plan
from sdm_runtime.tensor.differentiable import once_differentiable
from sdm_runtime.tensor.dtypes import KERNEL_DTYPES
from sdm_runtime.tensor.refs import operand_refs, plan_memory
from sdm_runtime.tensor.transforms import check_transforms
from sdm_runtime.tensor.words import describe
from sdm_runtime.tensor.written import launch_stream

_Pair = tuple[Tensor, Tensor]
_Grads = tuple[Tensor, Tensor, Tensor, Tensor]


def token_gates(a: Tensor, b: Tensor, A_log: Tensor, dt_bias: Tensor) -> _Pair:
    """``beta = sigmoid(b)`` and ``g = -exp(A_log) * softplus(a + dt_bias)``, computed in float32.

    One kernel each for forward and backward, with the same bits on the CPU and a GPU; the backward
    computes anew from the arguments what it needs. Sums over tokens have one fixed order. Works
    under torch.compile, where it is one operator; differentiable once.

    Args:
        a: ``[B, T, H]``, float32 or bfloat16; of other dtypes float32 is made.
        b: ``[B, T, H]``, likewise.
        A_log: ``[H]``, likewise.
        dt_bias: ``[H]``, likewise.

    Returns:
        beta and g, float32 ``[B*H, T, 1]``: head h of batch element b is sequence ``b*H + h``.

    Raises:
        TypeError: A tensor that is not dense, or that torch.func transforms.
        ValueError: Shapes that do not fit, tensors on different devices, or one with a tangent.
    """
    if not torch.compiler.is_compiling():
        check_transforms("token_gates", {"a": a, "b": b, "A_log": A_log, "dt_bias": dt_bias})
    a, b = _fit(a), _fit(b)
    A_log, dt_bias = _fit(A_log).contiguous(), _fit(dt_bias).contiguous()
    # What the operator is for: its dispatch would cost every other call time.
    if torch.compiler.is_compiling() or not (type(a) is type(b) is Tensor) or a.is_meta:
        pair: _Pair = _gates(a, b, A_log, dt_bias)
        return pair
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in (a, b, A_log, dt_bias))
    if wanted or forward_ad._current_level >= 0:  # a tangent is refused there, not dropped
        pair = _TokenGates.apply(a, b, A_log, dt_bias)  # type: ignore[no-untyped-call]
        return pair
    return _forward(a, b, A_log, dt_bias)


def plan_token_gates(
    a: Tensor,
    b: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    beta: Tensor,
    g: Tensor,
    *,
    pdl: bool = False,
) -> Plan:
    """Record :func:`token_gates` as a plan of one step.

    Its operands are called gate_a, gate_b, A_log, dt_bias, beta and g. Where a or b is not
    contiguous, the operand is its memory from the first element to the last, as one dimension.

    Args:
        a: float32 or bfloat16 ``[B, T, H]``, the last dimension contiguous.
        b: likewise.
        A_log: float32 or bfloat16 ``[H]``, contiguous.
        dt_bias: likewise.
        beta: float32 ``[B*H, T, 1]``, contiguous, out.
        g: likewise.
        pdl: Launch programmatically in a chain: nothing in it may write A_log or dt_bias.

    Raises:
        TypeError: A tensor that is not dense, or of another dtype.
        ValueError: Another shape, layout or device.
    """
    operands = {"gate_a": a, "gate_b": b, "A_log": A_log, "dt_bias": dt_bias, "beta": beta, "g": g}
    bound = _core.plan_token_gates(operand_refs(operands, "[token_gates] "), pdl)
    return Plan._recorded(bound, {name: plan_memory(x) for name, x in operands.items()})


def _fit(x: Tensor) -> Tensor:
    """The tensor as the kernels take it: of their dtypes, the last dimension contiguous."""
    if x.dtype not in KERNEL_DTYPES:
        x = x.float()
    if x.layout is not torch.strided or x.stride(-1) == 1:  # others are refused by name later
        return x
    return x.contiguous()


def _empty_gates(a: Tensor) -> _Pair:
    if a.ndim != 3:
        raise ValueError(
            f"[token_gates] a: expected float32 or bfloat16 [B, T, H], got {describe(a)}"
        )
    batches, tokens, heads = a.shape
    shape = (batches * heads, tokens, 1)
    return a.new_empty(shape, dtype=torch.float32), a.new_empty(shape, dtype=torch.float32)


def _empty_grads(a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor) -> _Grads:
    return (
        a.new_empty(a.shape),
        b.new_empty(b.shape),
        torch.empty_like(a_log),
        torch.empty_like(dt_bias),
    )


def _forward(a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor) -> _Pair:
    beta, g = _empty_gates(a)
    operands = {"gate_a": a, "gate_b": b, "A_log": a_log, "dt_bias": dt_bias, "beta": beta, "g": g}
    refs = operand_refs(operands, "[token_gates] ")
    _core.token_gates(refs, launch_stream("token_gates", a.device))
    return beta, g


def _backward(
    d_beta: Tensor, d_g: Tensor, a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor
) -> _Grads:
    grads = _empty_grads(a, b, a_log, dt_bias)
    d_a, d_b, d_a_log, d_dt_bias = grads
    operands = {"d_beta": d_beta.contiguous(), "d_g": d_g.contiguous(), "gate_a": a, "gate_b": b}
    operands |= {"A_log": a_log, "dt_bias": dt_bias, "d_gate_a": d_a, "d_gate_b": d_b}
    operands |= {"d_A_log": d_a_log, "d_dt_bias": d_dt_bias}
    refs = operand_refs(operands, "[token_gates_grad] ")
    _core.token_gates_grad(refs, launch_stream("token_gates_grad", a.device))
    return grads


class _TokenGates(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor) -> _Pair:
        ctx.save_for_backward(a, b, a_log, dt_bias)
        return _forward(a, b, a_log, dt_bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_beta: Tensor, d_g: Tensor) -> tuple[Tensor | None, ...]:
        return _needed(ctx, _backward(d_beta, d_g, *map(_fit, ctx.saved_tensors)))


def _needed(ctx: Any, grads: _Grads) -> tuple[Tensor | None, ...]:
    return tuple(x if y else None for x, y in zip(grads, ctx.needs_input_grad, strict=True))


@torch.library.custom_op("sdm_runtime::token_gates", mutates_args=())
def _gates(a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor) -> tuple[Tensor, Tensor]:
    return _forward(_fit(a), _fit(b), a_log.contiguous(), dt_bias.contiguous())


@_gates.register_fake
def _fake_gates(a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor) -> tuple[Tensor, Tensor]:
    return _empty_gates(a)


@torch.library.custom_op("sdm_runtime::token_gates_grad", mutates_args=())
def _gates_grad(
    d_beta: Tensor, d_g: Tensor, a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _backward(d_beta, d_g, _fit(a), _fit(b), a_log.contiguous(), dt_bias.contiguous())


@_gates_grad.register_fake
def _fake_gates_grad(
    d_beta: Tensor, d_g: Tensor, a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _empty_grads(a, b, a_log, dt_bias)


def _setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: _Pair) -> None:
    ctx.save_for_backward(*inputs)


def _traced_backward(ctx: Any, d_beta: Tensor, d_g: Tensor) -> tuple[Tensor | None, ...]:
    return _needed(ctx, _gates_grad(d_beta, d_g, *ctx.saved_tensors))


_gates.register_autograd(_traced_backward, setup_context=_setup_context)
