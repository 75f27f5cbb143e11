"""Small layers for the tests, and how their results are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sdm_runtime.layer import SparseDeltaMemory, SparseDeltaMemoryArgs

BASE: dict[str, Any] = {"num_writes": 4, "num_reads": 5, "slots_per_head": 36, "chunk_size": 16}
# Every option at least once, in company and alone.
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "heads": {"num_heads": 3},
    "gated, normalized": {"output_gate": True, "normalize_readings": True, "num_heads": 2},
    "zero bank": {"backprop_on_memory": False},
    "batchnorm": {"query_batchnorm": True, "num_heads": 2},
    "key weighted decay": {"key_weighted_decay": True},
    "l2": {"read_act": "l2_normalize", "write_act": "l2_normalize", "A_init_range": (1, 2)},
    "scaled activations": {
        "read_act": "SiLU",
        "write_act": "Sigmoid",
        "read_act_scale": 2.0,
        "write_act_scale": -0.5,
    },
    "one factor": {"product_key_factor_dims": (36,)},
    "three factors": {"product_key_factor_dims": (2, 3, 6), "num_reads": 36},
    "everything": {
        "num_heads": 2,
        "output_gate": True,
        "normalize_readings": True,
        "query_batchnorm": True,
        "key_weighted_decay": True,
        "product_key_factor_dims": (4, 9),
        "read_act": "Tanh",
        "norm_eps": 1e-3,
    },
}


def make_layer(dim: int = 12, seed: int = 0, **options: Any) -> SparseDeltaMemory:
    """A layer whose learned values are all away from their special initial ones."""
    torch.manual_seed(seed)
    layer = SparseDeltaMemory(SparseDeltaMemoryArgs(dim, **{**BASE, **options}))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return layer


def make_input(layer: SparseDeltaMemory, batch: int = 2, tokens: int = 21) -> Tensor:
    torch.manual_seed(7)
    return torch.randn(batch, tokens, layer.args.dim)


def error(given: Tensor, expected: Tensor) -> float:
    """Distance by norm, relative to the expected values."""
    given, expected = given.detach().double(), expected.detach()
    return float((given - expected).norm() / expected.norm().clamp(min=1e-12))


def gradients(
    layer: SparseDeltaMemory, x: Tensor, run: Callable[[Tensor], Tensor] | None = None
) -> dict[str, Tensor]:
    """Gradients of a fixed weighted sum of the output, by parameter name and "x"."""
    leaf = x.detach().clone().requires_grad_()
    layer.zero_grad()
    y = layer(leaf)[0] if run is None else run(leaf)
    torch.manual_seed(11)
    (y.float() * torch.randn(y.shape)).sum().backward()
    grads = {name: p.grad for name, p in layer.named_parameters() if p.grad is not None}
    return {**grads, "x": leaf.grad}
