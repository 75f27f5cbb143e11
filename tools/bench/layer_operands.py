"""Layers and inputs at the sizes that layer.py times, and the slots that their tokens pick.

slot_picks.py says what uniform, skewed and one-hot mean. A layer picks by its scores, so here a
bias of the key and query projections makes them, fitted to random normal scores:

- uniform: none, the scores are standard normal;
- skewed: one that falls with the logarithm of the column, so steep that the largest group of a
  chunk of 64 tokens has about 20 entries;
- one-hot: one column of each factor scores the same for every token, just so much that the slot of
  both is among the best of every token.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from sdm_runtime import SparseDeltaMemory, SparseDeltaMemoryArgs

LARGEST_GROUP = 20  # of a chunk of 64 tokens that picks skewed slots: 14 to 26 in trained models
FITTED_CHUNKS = 4


@dataclass(frozen=True)
class Shape:
    """A layer and the input of a training step: batch x tokens, W = R entries a token and head."""

    name: str
    dim: int
    heads: int
    slots: int  # of a head
    entries: int
    batch: int
    tokens: int

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads

    @property
    def width(self) -> int:
        """Of each of the product key's two factors."""
        return round(self.slots**0.5)

    def layer_bytes(self, batch: int) -> int:
        """Of a layer's bf16 weights and its bank for a batch."""
        weights = self.dim * (2 * self.dim + 4 * self.heads * self.width)
        return 2 * (weights + batch * self.heads * self.slots * self.head_dim)


SHAPES = [
    Shape("m_hd128", 2048, 16, 16384, 32, 1, 8192),
    Shape("l_hd1024", 2048, 2, 65536, 64, 1, 16384),
    Shape("s_hd64", 512, 8, 4096, 16, 4, 4096),
]
TINY = Shape("tiny", 64, 2, 64, 4, 2, 80)


def make_layer(
    shape: Shape, picks: str, device: torch.device, *, learned_bank: bool = True
) -> SparseDeltaMemory:
    """A bfloat16 layer whose tokens, standard normal, pick slots so; drawn from torch's generator.

    A learned bank is drawn too: the layer's own begins at zero.
    """
    args = SparseDeltaMemoryArgs(
        dim=shape.dim,
        num_heads=shape.heads,
        slots_per_head=shape.slots,
        num_writes=shape.entries,
        num_reads=shape.entries,
        backprop_on_memory=learned_bank,
    )
    with torch.device("meta"):  # so that everything is drawn on the device
        layer = SparseDeltaMemory(args)
    layer = layer.to(torch.bfloat16).to_empty(device=device)
    layer.reset_parameters()
    with torch.no_grad():
        if layer.memory is not None:
            layer.memory.normal_(0, 0.1)
        for projection in (layer.Wk_write, layer.Wq_read):
            spread_slots(projection, shape, picks)
    return layer


def spread_slots(projection: torch.nn.Linear, shape: Shape, picks: str) -> None:
    """Draw a projection [heads * 2 * width, dim] whose scores pick slots so."""
    bias = score_bias(shape, picks, projection.weight.device)
    projection.weight.normal_(0, shape.dim**-0.5)
    projection.bias.view(shape.heads, 2, shape.width).copy_(bias)
    if picks == "one-hot":
        rows = projection.weight.view(shape.heads, 2, shape.width, shape.dim)
        rows[:, :, sink_column(shape)] = 0


def sink_column(shape: Shape) -> int:
    """The column of both factors whose slot every token names where picks are one-hot."""
    return shape.width // 3


@functools.lru_cache(maxsize=16)
def score_bias(shape: Shape, picks: str, device: torch.device) -> Tensor:
    """float32 [width]: the bias of each column's score, of either factor.

    Raises:
        ValueError: picks are none of slot_picks.PICKS.
    """
    bias = torch.zeros(shape.width, device=device)
    if picks == "uniform":
        return bias
    generator = torch.Generator(device).manual_seed(3)
    tokens = (FITTED_CHUNKS, 64)
    scores = torch.randn(*tokens, 2, shape.width, device=device, generator=generator)
    if picks == "one-hot":
        scores[..., sink_column(shape)] = -torch.inf
        least_of_best = best_slots(scores, shape.entries)[0].amin(-1)
        bias[sink_column(shape)] = least_of_best.max() / 2 + 0.1
        return bias
    if picks != "skewed":
        raise ValueError(f"picks: expected uniform, skewed or one-hot, got {picks}")
    fall = -torch.log1p(torch.arange(shape.width, device=device))
    low, high = 0.0, 4.0
    for _ in range(12):
        middle = (low + high) / 2
        group = largest_groups(scores + middle * fall, shape.entries).mean()
        low, high = (middle, high) if group < LARGEST_GROUP else (low, middle)
    return low * fall


def best_slots(scores: Tensor, entries: int) -> tuple[Tensor, Tensor]:
    """Scores and numbers [..., entries] of the best slots of factors' scores [..., 2, width]."""
    sums = scores[..., 0, :, None] + scores[..., 1, None, :]
    best = sums.flatten(-2).topk(entries, -1)
    return best.values, best.indices


def largest_groups(scores: Tensor, entries: int) -> Tensor:
    """How often each chunk names its commonest slot: [chunks] of scores [chunks, 64, 2, width]."""
    slots = best_slots(scores, entries)[1].flatten(1)
    counts = torch.zeros(len(slots), scores.shape[-1] ** 2, device=scores.device)
    return counts.scatter_add_(1, slots, torch.ones_like(slots, dtype=counts.dtype)).amax(1)


def normal(*sizes: int, device: torch.device) -> Tensor:
    """Standard normal, bfloat16."""
    return torch.randn(*sizes, device=device).bfloat16()
