"""Backwards that nothing differentiates again, and forwards that may run again."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable as _guarded

Backward = Callable[..., tuple[Tensor | None, ...]]


def once_differentiable(backward: Backward) -> Backward:
    """torch's decorator; where grad mode is off, as it usually is, it would only cost time."""
    guarded = _guarded(backward)

    @wraps(backward)
    def chosen(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return (guarded if torch.is_grad_enabled() else backward)(ctx, *grads)

    return chosen


def may_run_again() -> bool:
    """Whether an autograd Function's forward is running without gradients.

    A reentrant checkpoint is one, and its backward makes the call a second time. torch switches
    forward-mode derivatives off in those, and otherwise in inference mode alone.
    """
    return not (torch.is_inference_mode_enabled() or torch._C._is_fwd_grad_enabled())
