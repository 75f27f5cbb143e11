"""Operands of a group of linear layers, and its plan for a GPU that need not be there."""

from __future__ import annotations

import dataclasses

import torch
from core_testing import core_testing
from cuda_refs import as_cuda
from linear_cases import operands

# q, k, v, a, b and the output gate of a decoding layer; small, with a and b as narrow as they are.
LAYER = (512, 512, 256, 16, 16, 256)


@dataclasses.dataclass
class Group:
    x: torch.Tensor
    weights: list[torch.Tensor]
    biases: list[torch.Tensor | None]
    ys: list[torch.Tensor]

    def members(self):
        return zip(self.weights, self.biases, self.ys, strict=True)


def on_boundary(values: torch.Tensor) -> torch.Tensor:
    """A copy on a 256-byte boundary, as the framework's GPU allocator gives them."""
    spare = torch.zeros(values.numel() + 256, dtype=values.dtype, device=values.device)
    start = -spare.data_ptr() % 256 // spare.element_size()
    copy = spare[start : start + values.numel()].view(values.shape)
    return copy.copy_(values)


def make_group(m, rows, k, *, biases=True, seed=0, device="cpu") -> Group:
    """Biases: for all, for none, or "some": for every other one. Outputs hold NaN."""
    x = on_boundary(operands(m, 1, k, seed=seed, device=device)[0])
    group = Group(x, [], [], [])
    for i, n in enumerate(rows):
        has_bias = biases if isinstance(biases, bool) else i % 2 == 0
        _, weight, bias = operands(1, n, k, bias=has_bias, seed=seed + 1 + i, device=device)
        group.weights.append(on_boundary(weight))
        group.biases.append(None if bias is None else on_boundary(bias))
        nan = torch.full((m, n), torch.nan, dtype=torch.bfloat16, device=device)
        group.ys.append(on_boundary(nan))
    return group


def refs_of(group: Group) -> dict:
    """The launcher's arguments, by name."""
    return {
        "x": as_cuda(group.x),
        "weights": [as_cuda(weight) for weight in group.weights],
        "biases": [None if bias is None else as_cuda(bias) for bias in group.biases],
        "ys": [as_cuda(y) for y in group.ys],
    }


def recorded(refs: dict, choice=None, *, pdl=False, sm_count=132) -> bytearray:
    """The plan's bytes, as recorded for a Hopper GPU of so many SMs."""
    record = core_testing().hopper_plan_bf16_linear_group
    return bytearray(record(*refs.values(), choice, pdl, sm_count))
