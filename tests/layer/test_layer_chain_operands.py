"""Chains of few tokens: what of a layer no plan takes is called as it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from layer_cases import error, make_input, make_layer
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from sdm_runtime import last_dispatch
from sdm_runtime.layer import SparseDeltaMemory, decoding
from sdm_runtime.layer.prepared import OP
from sdm_runtime.layer.projection import kernel_parameters


def general(layer: SparseDeltaMemory, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """The layer's output by the way of a call that is no decoding."""
    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(decoding, "is_decoding", lambda *_: False)
        y, _ = layer(x)
    assert last_dispatch()["op"] != OP
    return y


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_a_parameter_that_became_an_attribute_is_the_modules_to_find(name: str) -> None:
    linear = nn.Linear(16, 8).bfloat16()
    x = torch.randn(1, 1, 16).bfloat16()
    assert kernel_parameters(linear, x) == (linear.weight, linear.bias)
    own = getattr(linear, name).detach()
    delattr(linear, name)
    setattr(linear, name, own)  # as wrappers do that gather weights for a call
    assert kernel_parameters(linear, x) is None


OWN: dict[str, Callable[[Tensor], Tensor]] = {
    "float64": Tensor.double,
    "float16": Tensor.half,
    "strided": lambda own: own.repeat_interleave(2)[::2],
    "expanded": lambda own: own[:1].expand(3),
}


@pytest.mark.parametrize("name", ["A_log", "dt_bias"])
@pytest.mark.parametrize("kind", OWN)
def test_own_parameters_of_any_dtype_and_layout(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = make_layer(num_heads=3).eval()
    x = make_input(layer, tokens=3)
    own = getattr(layer, name)
    own.data = OWN[kind](own.data)
    expected = general(layer, x, monkeypatch)
    with torch.no_grad():
        y, _ = layer(x)
    assert torch.equal(y, expected)
    ran = last_dispatch()
    assert (ran["op"], ran["route"]) == (OP, "general")
    assert re.match(rf"{name} is float\d\d \[3\] with strides", str(ran["reason"]))
    own.data = own.data.float().contiguous()  # the control
    with torch.no_grad():
        y, _ = layer(x)
    assert last_dispatch()["route"] == "chain"
    assert error(y, expected.double()) < 1e-3


@pytest.mark.parametrize("name", ["x", "A_log"])
def test_a_tangent_is_refused_and_not_dropped(name: str) -> None:
    layer = make_layer().eval()
    x = make_input(layer, tokens=3)
    with torch.no_grad(), forward_ad.dual_level():
        layer(x)  # the control: without one
        if name == "x":
            x = forward_ad.make_dual(x, torch.ones_like(x))
        else:
            own = layer.A_log
            del layer.A_log
            layer.A_log = forward_ad.make_dual(own, torch.ones_like(own))
        with pytest.raises((NotImplementedError, ValueError), match=r"jvp|tangent"):
            layer(x)


class Seen(TorchDispatchMode):
    """What a mode sees of the operations."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[str] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ops.append(str(op))
        return op(*args, **(kwargs or {}))


def test_a_dispatch_mode_sees_a_call_as_it_would_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer = make_layer().eval()
    x = make_input(layer, tokens=3)
    with Seen() as expected:
        general(layer, x, monkeypatch)
    with Seen() as seen, torch.no_grad():
        layer(x)
    assert seen.ops == expected.ops
    assert last_dispatch()["reason"] == "a dispatch mode wants to see what is called"
    with torch.no_grad():
        layer(x)
    assert last_dispatch()["route"] == "chain"


class Cast(nn.Module):
    """A projection whose results have a dtype of their own, as some quantized ones have."""

    def __init__(self, base: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__()
        self.base, self.dtype = base, dtype

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x).to(self.dtype)


@pytest.mark.parametrize("name", ["Wq_read", "Wk_write", "Wv_write", "a_proj", "b_proj"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_projections_of_unlike_dtypes(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = make_layer(num_heads=2).bfloat16().eval()
    setattr(layer, name, Cast(getattr(layer, name), dtype))
    x = make_input(layer, tokens=3).bfloat16()
    expected = general(layer, x, monkeypatch)
    with torch.no_grad():
        y, _ = layer(x)
    assert last_dispatch()["route"] == "chain"
    assert error(y, expected.double()) < 2e-2


class Narrowed(nn.Module):
    """A projection that is a part of a wider one."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base

    def forward(self, x: Tensor) -> Tensor:
        y = self.base(x)
        return torch.cat([y[..., :3], y, y], dim=-1)[..., 3 : 3 + y.shape[-1]]


def operands_of_chains(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Tensor]]:
    """What chains are given."""
    seen: list[dict[str, Tensor]] = []
    make = decoding._Call._chain

    def noted(call: Any, plans: Any, operands: dict[str, Tensor], arenas: Any) -> Any:
        seen.append(operands)
        return make(call, plans, operands, arenas)

    monkeypatch.setattr(decoding._Call, "_chain", noted)
    return seen


def test_operands_start_on_a_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are kept for later calls: how this one's memory lies is nothing they may depend on."""
    layer = make_layer().eval()
    layer.Wk_write = Narrowed(layer.Wk_write)  # type: ignore[assignment]
    seen = operands_of_chains(monkeypatch)
    x = make_input(layer, batch=1, tokens=1)
    with torch.no_grad():
        assert layer.Wk_write(x).is_contiguous()
        assert layer.Wk_write(x).data_ptr() % 16  # the control
        layer(x)
    assert len(seen) == 2
    assert all(operand.data_ptr() % 16 == 0 for given in seen for operand in given.values())


class Altered(nn.Module):
    """A projection whose results are no longer what they were."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base
        self.alter: Callable[[Tensor], Tensor] = lambda y: y

    def forward(self, x: Tensor) -> Tensor:
        return self.alter(self.base(x))


# As many values otherwise, more of them, fewer, elsewhere.
ALTERED: dict[str, Callable[[Tensor], Tensor]] = {
    "turned": lambda y: y.transpose(0, 1),
    "a sequence a token": lambda y: y.reshape(-1, 1, y.shape[2]),
    "wide": lambda y: torch.cat([y, y], dim=-1),
    "narrow": lambda y: y[..., :-1],
    "one batch element": lambda y: y[:1],
    "elsewhere": lambda y: y.to("meta"),
}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("alter", ALTERED.values(), ids=ALTERED)
@pytest.mark.parametrize("name", ["Wq_read", "Wk_write", "Wv_write", "a_proj", "b_proj"])
def test_results_of_other_sizes_are_refused_by_a_kept_chain(
    name: str, alter: Callable[[Tensor], Tensor], mode: Callable[[], Any]
) -> None:
    layer = make_layer(num_heads=2, slots_per_head=9).eval()  # too few slots to keep rows
    projection = Altered(getattr(layer, name))
    setattr(layer, name, projection)
    x = make_input(layer, tokens=3)
    with mode():
        _, cache = layer(x)
        before = cache.bank.clone()
        projection.alter = alter
        with pytest.raises(ValueError, match=rf"{name}: expected a dense result \[2, 3, \d+\] on"):
            layer(x, cache)
        assert torch.equal(cache.bank, before)
        projection.alter = lambda y: y.clone()
        layer(x, cache)  # the control
