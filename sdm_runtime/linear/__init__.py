"""bf16_linear: a linear layer for few rows, on Hopper where it was measured to be faster."""

from __future__ import annotations

from .modes import forced_tactic, static_weights
from .op import bf16_linear, kernel_serves
from .plan import plan_bf16_linear

__all__ = ["bf16_linear", "forced_tactic", "kernel_serves", "plan_bf16_linear", "static_weights"]
