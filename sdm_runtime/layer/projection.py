"""The layer's projections: nn.Linear, or in decoding bf16_linear where it was measured to win."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sdm_runtime.linear import bf16_linear, kernel_serves

# Beyond, the weights are no longer what the time goes into, and nothing was measured to win.
MAX_TOKENS = 128


def project(linear: nn.Module, x: Tensor, *, low_latency: bool) -> Tensor:
    """``linear(x)``, x [B, T, K]; with low_latency, by bf16_linear's kernel where its rule says so.

    The kernel is for calls without gradient, of at most 128 tokens, in bfloat16 with bfloat16
    weights. A module that is more than a plain nn.Linear (a subclass, hooks, a weight that is a
    tensor subclass) is always called as it is.
    """
    if low_latency and _may_serve(linear, x):
        assert isinstance(linear, nn.Linear)
        # A compiled graph holds the op, which asks the rule when it runs.
        if torch.compiler.is_compiling() or kernel_serves(x, linear.weight, linear.bias):
            return bf16_linear(x, linear.weight, linear.bias)
    projected: Tensor = linear(x)
    return projected


def _may_serve(linear: nn.Module, x: Tensor) -> bool:
    if x.dtype != torch.bfloat16 or not 0 < x.shape[0] * x.shape[1] <= MAX_TOKENS:
        return False
    kind = x.device.type
    if torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) != torch.bfloat16:
        return False
    if type(linear) is not nn.Linear or linear._forward_hooks or linear._forward_pre_hooks:
        return False
    weight = linear.weight
    if type(weight) is not nn.Parameter or weight.dtype != torch.bfloat16:
        return False
    return not (torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad))
