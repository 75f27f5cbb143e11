"""The optimizer, its parameter groups and the learning rate."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sdm_runtime.train.config import OptimConfig


def make_optimizer(
    model: nn.Module, config: OptimConfig, device: torch.device
) -> torch.optim.AdamW:
    """Return AdamW over two groups: what decays, and what `split_weight_decay` exempts.

    The rate is one float32 tensor on ``device`` that all groups share, so that a captured step
    can be given another rate.
    """
    from sdm_runtime.layer import split_weight_decay

    decayed, exempt = split_weight_decay(model)
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": exempt, "weight_decay": 0.0},
    ]
    rate = torch.zeros((), dtype=torch.float32, device=device)
    capturable = device.type == "cuda"
    return torch.optim.AdamW(groups, lr=rate, betas=config.betas, fused=True, capturable=capturable)


def set_rate(optimizer: torch.optim.Optimizer, rate: Tensor) -> None:
    """Copy ``rate`` (float32 scalar) into every group, in place."""
    for group in optimizer.param_groups:
        group["lr"].copy_(rate)


def learning_rate(config: OptimConfig, step: int, steps: int) -> float:
    """Return the rate of a step: linear warm-up, then a cosine to a tenth of the peak."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    done = (step - config.warmup_steps) / max(1, steps - config.warmup_steps)
    return config.learning_rate * (0.55 + 0.45 * math.cos(math.pi * done))
