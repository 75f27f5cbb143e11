"""Operands and the float64 reference of bf16_linear."""

from __future__ import annotations

import torch


def operands(
    m: int, n: int, k: int, *, bias: bool = True, seed: int = 0, device: str = "cpu"
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """x [m, k], weight [n, k], bias [n] or None: bfloat16 in [-1, 1)."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> torch.Tensor:
        values = torch.rand(*shape, generator=generator) * 2 - 1
        return values.bfloat16().to(device)

    return uniform(m, k), uniform(n, k), uniform(n) if bias else None


def reference(x, weight, bias=None) -> torch.Tensor:
    """float64, on the CPU, from the rounded inputs."""
    out = x.cpu().double() @ weight.cpu().double().T
    return out if bias is None else out + bias.cpu().double()


def error(out: torch.Tensor, expected: torch.Tensor) -> float:
    """By norm, relative."""
    return float((out.cpu().double() - expected).norm() / expected.norm())
