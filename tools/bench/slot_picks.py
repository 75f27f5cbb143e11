"""The three ways in which the benchmarks let tokens pick slots.

- uniform: random slots;
- skewed: (floor(S u^6) + 7 n) mod S for u uniform and n = 0 .. count-1, so that the largest groups
  of a chunk of 64 tokens have 14 to 26 entries, as in trained models;
- one-hot: random, but one slot, a sink, is named by every token, among its writes and its reads.

A token's slots are distinct as long as S is a power of two.
"""

from __future__ import annotations

import argparse

import torch

PICKS = ("uniform", "skewed", "one-hot")


def pick_slots(
    picks: str, tokens: tuple[int, ...], count: int, slots: int, generator: torch.Generator
) -> torch.Tensor:
    """int64 [*tokens, count], each in 0 .. slots-1, on the generator's device."""
    if slots & (slots - 1) or count > slots:
        raise ValueError(f"slots: expected a power of two, at least {count}, got {slots}")
    device, shape = generator.device, (*tokens, 1)
    number = torch.arange(count, device=device)
    if picks == "skewed":
        start = torch.rand(shape, device=device, generator=generator).pow_(6).mul_(slots).long()
        return (start + 7 * number) % slots
    start = torch.randint(slots, shape, device=device, generator=generator)
    stride = 2 * torch.randint(max(1, slots // 2), shape, device=device, generator=generator) + 1
    picked = (start + stride * number) % slots
    if picks == "one-hot":
        sink = slots // 3
        picked = torch.where(picked == sink, picked[..., :1], picked)
        picked[..., 0] = sink
    elif picks != "uniform":
        raise ValueError(f"picks: expected one of {', '.join(PICKS)}, got {picks}")
    return picked


def add_option(parser: argparse.ArgumentParser) -> None:
    """Adds --slots, one or several of them; without it uniform ones."""
    parser.add_argument("--slots", nargs="+", choices=PICKS, default=["uniform"])
