"""The layer's projections: nn.Linear, or in decoding bf16_linear where it was measured to win."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

from sdm_runtime.linear import bf16_linear, kernel_serves

# Beyond this the weights do not dominate the time, and nothing was measured to win.
MAX_TOKENS = 128


def plain_linear(module: nn.Module) -> nn.Linear | None:
    """The module as an nn.Linear, if calling it can do no more than multiply by its weight.

    Only then may the weight be looked at beforehand: hooks, wrappers and subclasses may bring it,
    from another device or another format, when the module is called.
    """
    if type(module) is not nn.Linear or "forward" in module.__dict__:
        return None
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        torch_modules._global_forward_hooks,
        torch_modules._global_forward_pre_hooks,
    )
    return None if any(hooks) else module


def project(linear: nn.Module, x: Tensor, *, low_latency: bool) -> Tensor:
    """``linear(x)``, x [B, T, K]; with low_latency, by bf16_linear's kernel where its rule says so.

    The kernel is for calls without gradient, of at most 128 tokens, in bfloat16 with bfloat16
    weights. A module that is more than a plain nn.Linear (a subclass, hooks, a weight that is a
    tensor subclass) is always called as it is.
    """
    if low_latency and _may_serve(x) and (plain := plain_linear(linear)) is not None:
        weight, bias = plain.weight, plain.bias
        # A compiled graph holds the op, which asks the rule when it runs.
        if _suits(x, weight) and (torch.compiler.is_compiling() or kernel_serves(x, weight, bias)):
            return bf16_linear(x, weight, bias)
    projected: Tensor = linear(x)
    return projected


def _may_serve(x: Tensor) -> bool:
    if x.dtype != torch.bfloat16 or not 0 < x.shape[0] * x.shape[1] <= MAX_TOKENS:
        return False
    kind = x.device.type
    return not torch.is_autocast_enabled(kind) or torch.get_autocast_dtype(kind) == torch.bfloat16


def _suits(x: Tensor, weight: Tensor) -> bool:
    if type(weight) is not nn.Parameter or weight.dtype != torch.bfloat16:
        return False
    return not (torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad))
