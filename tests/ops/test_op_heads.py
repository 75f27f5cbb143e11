"""Values and readings [B, T, H, hd], heads beside each other: the bits of the other layout."""

from __future__ import annotations

import pytest
import torch
from op_cases import DIFFERENTIABLE, Case, apart, beside, call, make_grad, make_inputs, run
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sdm_runtime.ops.call import geometry

CASE = Case(P=6, T=37, hd=12)


def _leaves(case: Case, heads: int) -> dict[str, Tensor]:
    inputs = make_inputs(case)
    inputs["v"] = beside(inputs["v"], heads)
    return {k: x.requires_grad_() if k in DIFFERENTIABLE else x for k, x in inputs.items()}


def _grad(case: Case, heads: int) -> Tensor:
    return beside(make_grad(case).view(case.P, case.T, case.hd), heads)


def _assert_same(case: Case, heads: int, leaves: dict[str, Tensor], readings: Tensor) -> None:
    """The readings and the gradients of the leaves are those of v [P, T, hd]."""
    wanted = run(case)
    assert readings.shape == (case.P // heads, case.T, heads, case.hd)
    assert readings.is_contiguous()
    assert torch.equal(apart(readings.detach()).flatten(0, 1), wanted.readings)
    for name in DIFFERENTIABLE:
        given = leaves[name].grad
        assert given is not None
        assert given.dtype == leaves[name].dtype
        given = apart(given) if name == "v" else given
        assert torch.equal(given, wanted.grads[name]), name
    assert torch.equal(leaves["memory"], wanted.restored)


_CASES = {
    "plain": CASE,
    "bf16": CASE.but(dtype=torch.bfloat16),
    "whole chunks": CASE.but(T=48),
    "shorter than a chunk": CASE.but(T=5),
    "one token": CASE.but(T=1),
    "odd head dim, several slices": CASE.but(hd=301, T=20),
    "fp8": CASE.but(options={"snapshot_quant": "fp8"}),
}


@pytest.mark.parametrize("heads", [1, 2, 3, 6])
@pytest.mark.parametrize("name", _CASES)
def test_gives_the_same_bits(name: str, heads: int) -> None:
    case = _CASES[name]
    leaves = _leaves(case, heads)
    readings = call(case, leaves)
    readings.backward(_grad(case, heads))
    _assert_same(case, heads, leaves, readings)


def test_the_sequences_are_in_order() -> None:
    """The control: heads and batch elements are not to be exchanged."""
    inputs = make_inputs(CASE)
    wanted = call(CASE, inputs | {"memory": inputs["memory"].clone()})
    other = call(CASE, inputs | {"v": beside(inputs["v"], 3)[[1, 0]]})
    assert not torch.equal(apart(other).flatten(0, 1), wanted)


def test_segments_of_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(geometry, "_SEGMENT_BYTES_HOST", 1)
    leaves = _leaves(CASE, 3)
    readings = call(CASE, leaves)
    readings.backward(_grad(CASE, 3))
    _assert_same(CASE, 3, leaves, readings)


def test_strides_of_values_and_of_the_gradient_do_not_matter() -> None:
    leaves = _leaves(CASE, 3)
    projected = torch.randn(2, CASE.T, 5, CASE.hd)  # values beside other columns
    projected[:, :, 1:4] = leaves["v"].detach()
    projected.requires_grad_()
    readings = call(CASE, leaves | {"v": projected[:, :, 1:4]})
    grad = _grad(CASE, 3)
    readings.backward(grad.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0))
    assert projected.grad is not None
    leaves["v"].grad = projected.grad[:, :, 1:4].contiguous()
    _assert_same(CASE, 3, leaves, readings)
    assert not projected.grad[:, :, [0, 4]].any()


def test_a_gradient_without_strides() -> None:
    """Of a sum: one number for all readings."""
    grads = []
    for heads in (None, 3):
        leaves = make_inputs(CASE)
        v = leaves["v"] if heads is None else beside(leaves["v"], heads)
        v.requires_grad_()
        call(CASE, leaves | {"v": v}).sum().backward()
        assert v.grad is not None
        grads.append(v.grad if heads is None else apart(v.grad))
    assert torch.equal(*grads)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_values_of_other_dtypes(dtype: torch.dtype) -> None:
    inputs = make_inputs(CASE)
    inputs["v"] = inputs["v"].to(dtype)
    wanted = run(CASE, inputs)
    leaves = {k: x.clone() for k, x in inputs.items()}
    v = beside(leaves["v"], 2).requires_grad_()
    readings = call(CASE, leaves | {"v": v})
    readings.backward(_grad(CASE, 2))
    assert torch.equal(apart(readings).flatten(0, 1), wanted.readings)
    assert v.grad is not None
    assert v.grad.dtype == dtype
    assert torch.equal(apart(v.grad), wanted.grads["v"])


def test_without_a_backward_and_in_place() -> None:
    inputs = make_inputs(CASE)
    wanted = call(CASE, inputs | {"memory": inputs["memory"].clone()})
    v = beside(inputs["v"], 2)
    given = call(CASE, inputs | {"v": v, "memory": inputs["memory"].clone()})
    assert torch.equal(apart(given).flatten(0, 1), wanted)
    readings = call(CASE, inputs | {"v": v.requires_grad_()})
    readings.mul_(2)  # an output that is no view
    readings.sum().backward()
    assert v.grad is not None


def test_what_is_not_finite() -> None:
    inputs = make_inputs(CASE)
    inputs["v"][4, 3, 0] = torch.nan
    wanted = call(CASE, inputs | {"memory": inputs["memory"].clone()})
    given = call(CASE, inputs | {"v": beside(inputs["v"], 3)})
    assert wanted.isnan().any()
    assert not wanted.isnan().all()
    assert torch.equal(apart(given).flatten(0, 1).nan_to_num(7), wanted.nan_to_num(7))


class _Copies(TorchDispatchMode):
    """Operations that write as many elements as the values have."""

    def __init__(self, numel: int) -> None:
        super().__init__()
        self.numel = numel
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in ("copy_", "clone", "_to_copy") and out.numel() >= self.numel:
            self.names.append(name)
        return out


@pytest.mark.parametrize("tokens", [32, 37])
def test_one_copy_each_way_and_none_between_layouts(tokens: int) -> None:
    """Staged: v in the forward, and the gradient; readings and dv are where they land."""
    case = CASE.but(T=tokens, hd=40)  # nothing else is as large
    leaves = _leaves(case, 3)
    numel = case.P * (tokens - tokens % 16) * case.hd
    with _Copies(numel) as copies:
        readings = call(case, leaves)
    assert copies.names == ["copy_"]
    grad = _grad(case, 3)
    with _Copies(numel) as copies:
        torch.autograd.grad(readings, leaves["v"], grad)
    assert copies.names == ["copy_"]
