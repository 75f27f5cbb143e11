"""Which operands the kernel declines, and rows without a copy."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from linear_cases import operands

import sdm_runtime
from sdm_runtime.linear.checks import as_rows, misaligned, unsupported


def wide(t: torch.Tensor, columns: int) -> torch.Tensor:
    """The same values with a gap of some columns between rows."""
    return torch.nn.functional.pad(t, (0, columns))[:, : t.shape[1]]


def uneven(x: torch.Tensor) -> torch.Tensor:
    """[2, 2, K]: two rows, a gap, two rows."""
    return torch.cat([x, x])[:6].view(2, 3, -1)[:, :2]


def test_kernel_takes_plain_operands():
    x, weight, bias = operands(5, 16, 64)
    assert unsupported(x, weight, bias) is None
    assert unsupported(x.view(5, 1, 64), weight, None) is None
    assert unsupported(wide(x, 8), weight, bias) is None


DECLINED = {
    "depth": (lambda x, w, b: (x[:, :60], w[:, :60], b), "not a multiple of 8"),
    "x K-major": (lambda x, w, b: (x.t().contiguous().t(), w, b), "x is not K-major (stride 5"),
    "weight K-major": (lambda x, w, b: (x, w.t().contiguous().t(), b), "weight is not K-major"),
    "x rows": (lambda x, w, b: (wide(x, 4), w, b), "x's rows do not start at multiples of 16"),
    "weight rows": (lambda x, w, b: (x, wide(w, 4), b), "weight's rows do not start at mult"),
    "repeated rows": (lambda x, w, b: (x[:1].expand(5, 64), w, b), "x's rows do not start"),
    "uneven rows": (lambda x, w, b: (uneven(x), w, b), "x's rows are not evenly spaced"),
    "bias": (lambda x, w, b: (x, w, b.repeat_interleave(2)[::2]), "bias is not contiguous"),
    "no rows": (lambda x, w, b: (x[:0], w, b), "empty"),
}


@pytest.mark.parametrize("name", DECLINED)
def test_what_the_kernel_cannot_take_is_said(name):
    change, reason = DECLINED[name]
    assert reason in unsupported(*change(*operands(5, 16, 64)))


def test_misaligned_addresses_are_said():
    x, weight, _ = operands(5, 16, 64)
    assert misaligned(x, weight) is None
    shifted = torch.empty(5 * 64 + 1, dtype=torch.bfloat16)[1:].view(5, 64)
    assert misaligned(shifted, weight) == "x's address is not a multiple of 16"
    weight = torch.empty(16 * 64 + 4, dtype=torch.bfloat16)[4:].view(16, 64)
    assert misaligned(x, weight) == "weight's address is not a multiple of 16"


@given(
    sizes=st.lists(st.integers(1, 3), min_size=3, max_size=3),
    padding=st.lists(st.integers(0, 1), min_size=3, max_size=3),
    order=st.permutations(range(3)),
    drop=st.integers(0, 3),
)
def test_rows_are_those_of_a_view(sizes, padding, order, drop):
    outer = [s + p for s, p in zip(sizes, padding, strict=True)]
    x = torch.arange(outer[0] * outer[1] * outer[2] * 8).view(*outer, 8)
    x = x[: sizes[0], : sizes[1], : sizes[2]].permute(*order, 3)[(0,) * drop]
    rows = as_rows(x)
    try:
        expected = x.view(-1, 8)
    except RuntimeError:
        assert rows is None
        return
    assert rows is not None
    assert torch.equal(x.as_strided((rows.count, 8), (rows.stride, 1)), expected)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("name", ["x", "weight", "bias"])
def test_what_is_no_dense_tensor_is_refused_by_name(name):
    floats = {"x": torch.ones(3, 16), "weight": torch.ones(8, 16), "bias": torch.ones(8)}
    good: dict[str, Any] = {key: value.bfloat16() for key, value in floats.items()}
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]).bfloat16()
    for bad, kind in ((3, "int"), (good[name].to_sparse(), "sparse_coo"), (nested, "nested")):
        with pytest.raises(TypeError, match=rf"^\[bf16_linear\] {name}: expected .*, got {kind}"):
            sdm_runtime.bf16_linear(**good | {name: bad})
