"""A kernel and its scalar reference on the same operands, compared bit for bit."""

from __future__ import annotations

import kernel_cases
import kernel_reference
import torch

from sdm_runtime import kernels

_INTS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def as_bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bits, every NaN the same."""
    bits = tensor.contiguous().view(_INTS[tensor.element_size()]).clone()
    if tensor.dtype in (torch.float32, torch.bfloat16):
        bits[tensor.isnan()] = -1
    return bits


def differing(a: dict, b: dict) -> list[str]:
    """Names of the tensors that differ in any bit."""
    return [name for name in a if not torch.equal(as_bits(a[name]), as_bits(b[name]))]


def copies(tensors: dict) -> dict:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def case(name: str, shape: kernel_cases.Shape):
    return getattr(kernel_cases, name.split("_")[1] + "_case")(shape)


def run(name: str, tensors: dict, sizes: dict, ti: int = 0, module=kernels) -> dict:
    """The operands after one step, on copies."""
    after = copies(tensors)
    getattr(module, name)(**after, ti=ti, **sizes)
    return after


def assert_matches_reference(name: str, shape: kernel_cases.Shape, ti: int | None = None) -> None:
    """Every operand after step ``ti`` (default: the last) has the reference's bits."""
    tensors, sizes = case(name, shape)
    ti = shape.steps - 1 if ti is None else ti
    expected = run(name, tensors, sizes, ti, kernel_reference)
    assert differing(run(name, tensors, sizes, ti), expected) == []
    # The step did something; where all of a small operand is NaN, it may not show.
    assert shape.special or differing(tensors, expected) != []
