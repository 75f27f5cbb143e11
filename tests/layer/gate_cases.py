"""Inputs of the gates, and what they are by definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

F32, BF16 = torch.float32, torch.bfloat16


class Sizes(NamedTuple):
    """B, T and H of a call."""

    batches: int
    tokens: int
    heads: int


# Decoding, one tile of tokens and a part of one, more heads than threads, all lanes of the sums.
SIZES = [
    Sizes(1, 1, 1),
    Sizes(3, 1, 5),
    Sizes(2, 37, 4),
    Sizes(1, 33, 1),
    Sizes(1, 2, 300),
    Sizes(2, 700, 2),
    Sizes(3, 2800, 2),
]
DTYPES = [(F32, F32), (BF16, F32), (BF16, BF16)]  # of the projections, of the parameters


def gate_inputs(
    sizes: Sizes, projected: torch.dtype = F32, own: torch.dtype = F32, gap: int = 0, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """a, b, A_log and dt_bias; a token of a and b starts ``gap`` elements behind the last one."""
    gen = torch.Generator().manual_seed(seed)
    batches, tokens, heads = sizes

    def draw(*shape: int) -> Tensor:
        return 3 * torch.randn(*shape, generator=gen)

    a, b = (draw(batches, tokens, heads + gap).to(projected)[..., :heads] for _ in range(2))
    return a, b, draw(heads).to(own), draw(heads).to(own)


def upstream(sizes: Sizes, seed: int = 1) -> tuple[Tensor, Tensor]:
    """d_beta and d_g."""
    gen = torch.Generator().manual_seed(seed)
    shape = (sizes.batches * sizes.heads, sizes.tokens, 1)
    return torch.randn(shape, generator=gen), torch.randn(shape, generator=gen)


def definition(a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor) -> tuple[Tensor, Tensor]:
    """The gates in the dtype of the arguments."""
    beta, g = torch.sigmoid(b), -a_log.exp() * F.softplus(a + dt_bias)
    return _by_sequence(beta), _by_sequence(g)


def _by_sequence(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(0, 1).unsqueeze(-1)


def run_with_gradients(
    run: Callable[..., Any], inputs: tuple[Tensor, ...], sizes: Sizes
) -> tuple[Tensor, ...]:
    """beta, g and the gradients of the four inputs."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    beta, g = run(*leaves)
    d_beta, d_g = (x.to(beta) for x in upstream(sizes))
    return beta.detach(), g.detach(), *torch.autograd.grad([beta, g], leaves, [d_beta, d_g])
