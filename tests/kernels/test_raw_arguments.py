"""What only the raw address and the core's int64 would show: refused by name, before any work."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from kernel_cases import Shape
from kernel_checks import case

from sdm_runtime import kernels

KERNELS = ("gx_gwr", "gx_gemm", "gx_pa2", "gx_gds", "fx_read", "fx_write")
SHAPE = Shape(hd=6, steps=2)


class Wrapper(torch.Tensor):
    """Shape, dtype and device of a tensor, as distributed and fake tensors have them: no memory."""

    @staticmethod
    def __new__(cls, tensor):
        return torch.Tensor._make_wrapper_subclass(cls, tensor.shape, dtype=tensor.dtype)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):  # type: ignore[override]
        raise NotImplementedError(f"{function}")


def emptied(tensor):
    """A tensor whose shape stays while its memory is gone."""
    tensor = tensor.clone()
    tensor.untyped_storage().resize_(0)
    return tensor


def shrunk(tensor):
    """The same with the last byte gone."""
    tensor = tensor.clone()
    tensor.untyped_storage().resize_(tensor.untyped_storage().nbytes() - 1)
    return tensor


def zero_tensor(tensor):
    """Zeros that torch keeps no memory for."""
    return torch._efficientzerotensor(tensor.shape, dtype=tensor.dtype)


BAD_MEMORY = [
    (emptied, ValueError, "expected a storage of "),
    (shrunk, ValueError, "it was resized"),
    (torch._neg_view, ValueError, "a view that negates them"),
    (lambda x: x.to_sparse(), TypeError, "expected a dense tensor, got sparse_coo"),
    (lambda x: torch.nested.nested_tensor([x, x]), TypeError, "a dense tensor, got nested"),
    (lambda x: x.to("meta"), ValueError, "a tensor on cpu or cuda, got one on meta"),
    (zero_tensor, TypeError, "a zero tensor, which has none: use torch.zeros_like()"),
    (torch._to_functional_tensor, TypeError, "inside of functionalization"),
    (Wrapper, TypeError, "a tensor that is its memory, got a Wrapper"),
    (lambda _: None, TypeError, "expected a torch.Tensor, got NoneType"),
]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(("change", "error", "message"), BAD_MEMORY)
@pytest.mark.parametrize("name", KERNELS)
def test_memory_that_does_not_hold_the_values(name, change, error, message):
    tensors, sizes = case(name, SHAPE)
    first = next(iter(tensors))
    tensors[first] = change(tensors[first])
    with pytest.raises(error, match=rf"^\[{name}\] {first}: .*{re.escape(message)}"):
        getattr(kernels, name)(**tensors, **sizes, ti=0)
    with pytest.raises(error, match=rf"^\[{name}\] {first}: .*{re.escape(message)}"):
        getattr(kernels, f"plan_{name}")(**tensors, **sizes, steps=2)


@pytest.mark.parametrize("value", [None, 1.0, "1", True, 2**63, -(2**64), float("nan")])
@pytest.mark.parametrize("name", KERNELS)
def test_sizes_that_are_no_int64(name, value):
    tensors, sizes = case(name, SHAPE)
    for argument in [*(s for s in sizes if s != "snap_step_rows"), "ti"]:
        wrong = sizes | {"ti": 0} | {argument: value}
        with pytest.raises((TypeError, ValueError), match=rf"^\[{name}\] {argument}: expected an"):
            getattr(kernels, name)(**tensors, **wrong)


@pytest.mark.parametrize("name", KERNELS)
def test_pdl_is_a_bool(name):
    tensors, sizes = case(name, SHAPE)
    with pytest.raises(TypeError, match=rf"^\[{name}\] pdl: expected a bool, got 1"):
        getattr(kernels, f"plan_{name}")(**tensors, **sizes, steps=2, pdl=1)


def test_an_empty_factor_is_no_absent_factor():
    sizes: dict[str, Any] = {"num_tokens": 7, "num_parallel": 2, "chunk_size": 4}
    with pytest.raises(ValueError, match="factor: expected float32 with 48 elements"):
        kernels.plane_reduce(torch.ones(2, 48), torch.ones(48), factor=torch.empty(0), **sizes)
