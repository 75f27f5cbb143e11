"""Initial values of the decay parameters."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_RATE_FLOOR = 1e-4
_STEP_RANGE = (1e-3, 1e-1)
_STEP_FLOOR = 1e-4


@torch.no_grad()
def init_decay_rates_(a_log: Tensor, rates: tuple[float, float]) -> None:
    """Fill A_log [H] with log(max(uniform(rates), 1e-4)), drawn in float32."""
    drawn = torch.empty_like(a_log, dtype=torch.float32).uniform_(*rates)
    a_log.copy_(drawn.clamp(min=_RATE_FLOOR).log())


@torch.no_grad()
def init_step_bias_(dt_bias: Tensor) -> None:
    """Fill dt_bias [H] with the inverse softplus of dt, log-uniform in [0.001, 0.1].

    softplus(dt_bias) = dt is then the step at which a zero projection decays the memory.
    """
    low, high = (math.log(bound) for bound in _STEP_RANGE)
    step = torch.empty_like(dt_bias, dtype=torch.float32).uniform_(low, high).exp()
    step = step.clamp(min=_STEP_FLOOR)
    # softplus^-1(y) = log(exp(y) - 1) = y + log(1 - exp(-y)), without overflow or cancellation
    dt_bias.copy_(step + torch.log(-torch.expm1(-step)))
