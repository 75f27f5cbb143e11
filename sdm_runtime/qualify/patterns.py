"""Operands on which another order of additions, or other rounding, shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sdm_runtime.qualify.operand_shapes import Sizes

_SEEDS_PER_PATTERN = 2
_ORDER_SEEDS = 8


class Draw:
    """Random numbers of one seed on one device; torch's own generators are left alone."""

    def __init__(self, device: torch.device, seed: int):
        """Seed a generator of its own."""
        generator = torch.Generator(device=device).manual_seed(seed)
        self._how: dict[str, Any] = {"generator": generator, "dtype": torch.float32}
        self._how["device"] = device

    def normal(self, *shape: int) -> Tensor:
        """Standard normal float32."""
        return torch.randn(shape, **self._how)

    def uniform(self, *shape: int) -> Tensor:
        """Uniform float32 in [0, 1)."""
        return torch.rand(shape, **self._how)

    def scaled(self, low: int, high: int, *shape: int) -> Tensor:
        """Of random sign, the logarithm uniform over the powers low..high of two."""
        exponent = low + (high - low) * self.uniform(*shape).double()
        magnitude = torch.exp2(exponent).float()
        return torch.where(self.uniform(*shape) < 0.5, -magnitude, magnitude)


class GemmInputs(NamedTuple):
    """One step: d_u [P, C, hd], x [P, C, C], d_dv [P, C, hd], float32."""

    d_u: Tensor
    x: Tensor
    d_dv: Tensor


def normal(draw: Draw, sizes: Sizes) -> GemmInputs:
    """Normal numbers: nearly every output depends on the order."""
    return GemmInputs(
        draw.normal(*sizes.rows), draw.normal(*sizes.square), draw.normal(*sizes.rows)
    )


def signed_zeros(draw: Draw, sizes: Sizes) -> GemmInputs:
    """Normal numbers, an eighth of them zeros of both signs, and sums of nothing but -0.

    Of those, -0 plus the sum tells a chain that begins with +0 from one that does not.
    """
    d_u, x, d_dv = (_with_zeros(draw, tensor, 0.125) for tensor in normal(draw, sizes))
    d_u[:, ::4] *= 0.0
    x[:, :, ::4] = -0.0
    d_dv[:, :, ::2].abs_()
    return GemmInputs(d_u, x, d_dv)


def many_zeros(draw: Draw, sizes: Sizes) -> GemmInputs:
    """As X is, lower triangular, and half of everything else zero."""
    d_u, x, d_dv = (_with_zeros(draw, tensor, 0.5) for tensor in normal(draw, sizes))
    return GemmInputs(d_u, x.tril(), d_dv)


def large(draw: Draw, sizes: Sizes) -> GemmInputs:
    """Magnitudes up to 3e38: sums overflow in some orders and not in others."""
    d_u = draw.scaled(100, 128, *sizes.rows).clamp(-3e38, 3e38)
    d_dv = draw.scaled(110, 128, *sizes.rows).clamp(-3e38, 3e38)
    return GemmInputs(d_u, draw.scaled(-12, 1, *sizes.square), d_dv)


def denormal(draw: Draw, sizes: Sizes) -> GemmInputs:
    """Operands, products and sums on both sides of the least normal number, 2^-126."""
    d_u, d_dv = (draw.scaled(-149, -118, *sizes.rows) for _ in range(2))
    return GemmInputs(d_u, draw.scaled(-4, 4, *sizes.square), d_dv)


def cancelling(draw: Draw, sizes: Sizes) -> GemmInputs:
    """Pairs of rows that nearly cancel: what is left is rounding."""
    d_u, x, d_dv = normal(draw, sizes)
    even = sizes.chunk // 2 * 2
    x[:, 1:even:2] = x[:, 0:even:2]
    d_dv[:, 1:even:2] = -d_dv[:, 0:even:2] * (1 + 2e-7 * draw.normal(*d_dv[:, 1:even:2].shape))
    return GemmInputs(d_u * 1e-6, x, d_dv)


def non_finite(draw: Draw, sizes: Sizes) -> GemmInputs:
    """A few infinities and NaNs among normal numbers; most outputs stay finite."""
    return GemmInputs(*(_with_non_finite(draw, t, sizes.chunk) for t in normal(draw, sizes)))


def _with_zeros(draw: Draw, tensor: Tensor, share: float) -> Tensor:
    """Zeros at random places, of the signs of the numbers there."""
    return torch.where(draw.uniform(*tensor.shape) < share, tensor * 0.0, tensor)


def _with_non_finite(draw: Draw, tensor: Tensor, chunk: int) -> Tensor:
    pick = draw.uniform(*tensor.shape) * (8 * chunk)
    tensor = torch.where(pick < 1.0, tensor * float("inf"), tensor)
    return torch.where(pick < 0.25, float("nan"), tensor)


PATTERNS: dict[str, Callable[[Draw, Sizes], GemmInputs]] = {
    "signed zeros": signed_zeros,
    "many zeros": many_zeros,
    "large": large,
    "denormal": denormal,
    "cancelling": cancelling,
    "non-finite": non_finite,
}
# Every run of a probe: (name, inputs, seed).
RUNS = tuple(
    [
        (name, make, 100 * number + seed)
        for number, (name, make) in enumerate(PATTERNS.items())
        for seed in range(_SEEDS_PER_PATTERN)
    ]
    + [("order", normal, 10_000 + seed) for seed in range(_ORDER_SEEDS)]
)
