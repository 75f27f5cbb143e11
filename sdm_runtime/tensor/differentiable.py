"""Backwards that nothing differentiates again."""

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
