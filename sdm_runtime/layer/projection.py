"""The layer's projections: nn.Linear, or in decoding bf16_linear where it was measured to win."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.nn.modules import module as torch_modules

from sdm_runtime import _core
from sdm_runtime.layer.activations import L2Normalize, SlotWeights
from sdm_runtime.linear import bf16_linear, kernel_serves
from sdm_runtime.linear.launch import device_kind
from sdm_runtime.ops.autograd.autocast import autocast_is_on
from sdm_runtime.ops.routes.bound_chains import PLAN_ALIGNMENT

# Beyond this the weights do not dominate the time, and nothing was measured to win.
MAX_TOKENS = 128


def _own(function: Callable[..., Any], module: str) -> Callable[..., Any] | None:
    """The function, if it is the one that its module brings: nobody has put another there."""
    return function if getattr(function, "__globals__", None) is vars(sys.modules[module]) else None


# What calling a module runs, as torch and this package have it: for all modules, and by kind.
_CALL = _own(nn.Module.__call__, nn.Module.__module__)
_FORWARDS: dict[type[nn.Module], Callable[..., Any] | None] = {
    kind: _own(kind.forward, kind.__module__)
    for kind in (nn.Linear, nn.LayerNorm, nn.Softmax, L2Normalize, SlotWeights)
}

_LINEAR, _LAYER_NORM = torch._C._nn.linear, _own(F.layer_norm, F.__name__)


def is_plain(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether calling the module can do no more than its kind's own forward.

    Only then may its parameters be looked at beforehand: hooks, wrappers and subclasses may bring
    them, from another device or another format, when the module is called. A forward that was
    replaced, in the module or in its class, may do anything. What is put in the place of functions
    that it calls: see :func:`noticing`.
    """
    # Asked for every module in every decoding call: no tuple is made of them.
    return (
        type(module) is kind
        and kind.forward is _FORWARDS.get(kind, kind.forward)
        and kind.__call__ is _CALL
        and not (
            module._forward_hooks
            or module._forward_pre_hooks
            or torch_modules._global_forward_hooks
            or torch_modules._global_forward_pre_hooks
            or "forward" in module.__dict__
        )
    )


def has_backward_hooks(module: nn.Module) -> bool:
    """Whether something looks at the module's gradients, or at those of all modules."""
    return bool(
        module._backward_hooks
        or module._backward_pre_hooks
        or torch_modules._global_backward_hooks
        or torch_modules._global_backward_pre_hooks
    )


def plain_linear(module: nn.Module) -> nn.Linear | None:
    """The module as an nn.Linear, if calling it can do no more than multiply by its weight."""
    return module if is_plain(module, nn.Linear) else None  # type: ignore[return-value]


def kernel_takes(x: Tensor) -> bool:
    """Whether plans of bf16_linear's kernel take an x [B, T, K], made contiguous."""
    if not x.is_cuda or not _may_serve(x) or x.shape[2] % 8:
        return False
    return device_kind(x.get_device())[0] == 9 and not _core.cuda_unavailable()


def kernel_parameters(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor | None] | None:
    """Weight and bias where a plan of bf16_linear's kernel may stand for calling the module.

    The rule that a single call asks knows other settings than a chain, where the weights are static
    and each launch stands behind another one of ours: it is not asked.
    """
    if not is_plain(module, nn.Linear):
        return None
    own = module._parameters  # a module's own lookup takes longer than the checks
    if "weight" not in own or "bias" not in own:  # attributes, as wrappers leave them
        return None
    weight, bias = own["weight"], own["bias"]
    if not _is_kernels(weight, x) or not (bias is None or _is_kernels(bias, x)):
        return None
    return (weight, bias) if weight.shape[1] == x.shape[2] else None


def _is_kernels(parameter: Tensor | None, x: Tensor) -> TypeGuard[Tensor]:
    return (
        type(parameter) is nn.Parameter
        and parameter.dtype is torch.bfloat16
        and parameter.device == x.device
        and parameter.is_contiguous()
        and parameter.data_ptr() % PLAN_ALIGNMENT == 0
    )


def noticing() -> str | None:
    """What would notice that a kernel runs in the place of torch's functions, or None.

    A device as a default (``with torch.device``) is a function mode that looks at none of them.
    """
    if not (F.linear is _LINEAR and F.layer_norm is _LAYER_NORM):
        return "a function of torch.nn.functional was replaced"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "torch.func transforms what is called"
    modes = torch._C._len_torch_function_stack()
    if modes and not all(_is_device(torch._C._get_function_stack_at(i)) for i in range(modes)):
        return "a function mode wants to see what is called"
    return None


def _is_device(mode: object) -> bool:
    return type(mode).__name__ == "DeviceContext"


def project(linear: nn.Module, x: Tensor, *, low_latency: bool) -> Tensor:
    """``linear(x)``, x [B, T, K]; with low_latency, by bf16_linear's kernel where its rule says so.

    The kernel is for calls without gradient, of at most 128 tokens, in bfloat16 with bfloat16
    weights. A module that is more than a plain nn.Linear (a subclass, hooks, a weight that is a
    tensor subclass) is always called as it is.
    """
    if low_latency and _may_serve(x) and (plain := plain_linear(linear)) is not None:
        weight, bias = plain.weight, plain.bias
        # A compiled graph holds the op, which asks the rule when it runs.
        if _suits(plain, x) and (
            torch.compiler.is_compiling() or (_unnoticed(x) and kernel_serves(x, weight, bias))
        ):
            return bf16_linear(x, weight, bias)
    projected: Tensor = linear(x)
    return projected


def _may_serve(x: Tensor) -> bool:
    if x.dtype != torch.bfloat16 or not 0 < x.shape[0] * x.shape[1] <= MAX_TOKENS:
        return False
    kind = x.device.type
    return not autocast_is_on(kind) or torch.get_autocast_dtype(kind) == torch.bfloat16


def _unnoticed(x: Tensor) -> bool:
    """Whether nobody sees that F.linear is not called; it has tangents, bf16_linear has none."""
    return type(x) is Tensor and forward_ad._current_level < 0 and noticing() is None


def _suits(linear: nn.Linear, x: Tensor) -> bool:
    weight, bias = linear.weight, linear.bias
    if type(weight) is not nn.Parameter or weight.dtype != torch.bfloat16:
        return False
    if not (bias is None or type(bias) is nn.Parameter):
        return False
    if not torch.is_grad_enabled():
        return True
    return not (x.requires_grad or weight.requires_grad or has_backward_hooks(linear))
