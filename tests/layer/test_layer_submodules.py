"""Projections, norms and activations of any kind are called as they are, and read by no one else.

Their parameters may be somewhere else, of another dtype or not there at all until they are called.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from layer_cases import BASE, OPTIONS, error, gradients, make_input, make_layer
from torch import Tensor, nn

from sdm_runtime import SparseDeltaMemory
from sdm_runtime.layer import projection

PROJECTIONS = ("Wq_read", "Wk_write", "Wv_write", "Wo", "a_proj", "b_proj", "Wog")
NORMS = ("readings_norm", "query_bn", "key_bn")
EVERYTHING = {**OPTIONS["everything"], "read_act": "PReLU"}
DTYPES = (torch.float32, torch.bfloat16)


def offload(module: nn.Module) -> None:
    """Keep the module's own parameters away, on meta, except while it runs."""
    own = dict(module.named_parameters(recurse=False))
    if not own:
        return

    def bring(*_: object) -> None:
        for name, parameter in own.items():
            setattr(module, name, parameter)

    def take_away(*_: object) -> None:
        for name, parameter in own.items():
            setattr(module, name, nn.Parameter(parameter.detach().to("meta")))

    module.register_forward_pre_hook(bring)
    module.register_forward_hook(take_away)
    take_away()


def offload_by_forward(module: nn.Module) -> None:
    """The same by a `forward` of the instance, as some frameworks have it."""
    offload(module)
    bring, take_away = (
        hooks.popitem()[1] for hooks in (module._forward_pre_hooks, module._forward_hooks)
    )
    inner = module.forward

    def forward(*given: object) -> object:
        bring()
        result = inner(*given)
        take_away()
        return result

    module.forward = forward


def submodules(layer: SparseDeltaMemory) -> list[nn.Module]:
    return [m for m in layer.modules() if any(True for _ in m.parameters(recurse=False))]


@pytest.fixture
def kernel_wins(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """As if bf16_linear's kernel won everywhere: what it would be asked to serve."""
    served = []

    def bf16_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        served.append(1)
        return torch.nn.functional.linear(x, weight, bias)

    monkeypatch.setattr(projection, "kernel_serves", lambda *_: True)
    monkeypatch.setattr(projection, "bf16_linear", bf16_linear)
    return served


@pytest.mark.parametrize("how", [offload, offload_by_forward])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("whole", [True, False])
def test_offloaded_parameters(
    kernel_wins: list[int], how: Callable[[nn.Module], None], dtype: torch.dtype, whole: bool
) -> None:
    layer = make_layer(**EVERYTHING).to(dtype).eval()
    x = make_input(layer, tokens=3).to(dtype)
    with torch.no_grad():
        expected, _ = layer(x)
        assert bool(kernel_wins) == (dtype == torch.bfloat16)
        kernel_wins.clear()
        modules = submodules(layer)
        assert len(modules) == 12  # the layer, seven projections, three norms, one activation
        for module in modules if whole else modules[1:]:
            how(module)
        assert layer.Wv_write.weight.is_meta
        given, cache = layer(x)
        layer(x, cache)
    assert torch.equal(given, expected)
    assert layer.A_log.is_meta == whole
    assert kernel_wins == []


def test_parameters_on_meta_are_not_enough() -> None:
    """The control: what nobody brings is missed."""
    layer = make_layer()
    x = make_input(layer)
    layer.Wv_write.to("meta")
    with pytest.raises(RuntimeError):
        layer(x)


def wrap(
    layer: SparseDeltaMemory, names: tuple[str, ...], kind: Callable[[nn.Linear], nn.Module]
) -> SparseDeltaMemory:
    wrapped = copy.deepcopy(layer)
    for name in names:
        setattr(wrapped, name, kind(getattr(wrapped, name)))
    return wrapped


def test_every_submodule_in_a_sequence() -> None:
    layer = make_layer(**EVERYTHING)
    wrapped = wrap(layer, (*PROJECTIONS, *NORMS), nn.Sequential)
    wrapped.read_act.act = nn.Sequential(wrapped.read_act.act)
    x = make_input(layer)
    expected, given = gradients(layer, x), gradients(wrapped, x)
    assert {n.replace(".0.", "."): True for n in given}.keys() == expected.keys()
    for name, grad in given.items():
        assert torch.equal(grad, expected[name.replace(".0.", ".")]), name


class LowRank(nn.Module):
    """A frozen projection and a trained one of low rank beside it; it has no weight."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, 2, bias=False, dtype=base.weight.dtype)
        self.up = nn.Linear(2, base.out_features, bias=False, dtype=base.weight.dtype)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_low_rank_projections(dtype: torch.dtype) -> None:
    layer = make_layer(**EVERYTHING).to(dtype)
    wrapped = wrap(layer, PROJECTIONS, LowRank)
    x = make_input(layer).to(dtype)
    assert torch.equal(wrapped(x)[0], layer(x)[0])
    given = gradients(wrapped, x)
    assert {f"{name}.up.weight" for name in PROJECTIONS} <= given.keys()
    assert all(given[f"{name}.up.weight"].any() for name in PROJECTIONS)
    assert not any(".base." in name for name in given)


class Int8(nn.Module):
    """A projection whose weight is int8 with a scale per row; it answers in `out` or as asked."""

    out: torch.dtype | None = None

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        wide = base.weight.detach().float()
        self.scale = wide.abs().amax(1, keepdim=True) / 127
        rounded = (wide / self.scale).round().to(torch.int8)
        self.weight = nn.Parameter(rounded, requires_grad=False)
        self.bias = base.bias

    def forward(self, x: Tensor) -> Tensor:
        dtype = self.out or x.dtype
        weight = self.weight.to(dtype) * self.scale.to(dtype)
        return nn.functional.linear(x.to(dtype), weight, self.bias.to(dtype))


class Int8InFloat32(Int8):
    out = torch.float32


@pytest.mark.parametrize("kind", [Int8, Int8InFloat32])
@pytest.mark.parametrize("dtype", DTYPES)
def test_quantized_projections(kind: type[Int8], dtype: torch.dtype) -> None:
    # The slots are chosen by the unquantized scores: a rounded one may choose others.
    layer = make_layer(output_gate=True, num_heads=2).to(dtype)
    names = ("Wv_write", "Wo", "Wog", "a_proj", "b_proj")
    wrapped = wrap(layer, names, kind)
    assert wrapped.Wv_write.weight.dtype == torch.int8
    x = make_input(layer).to(dtype)
    y, cache = wrapped(x)
    assert cache.bank.dtype == dtype
    assert error(y, layer(x)[0].double()) < 0.05
    y.float().sum().backward()
    assert wrapped.Wk_write.weight.grad.any()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        y, cache = wrap(make_layer(**BASE), ("Wv_write", "Wo"), kind)(x.float())
    assert cache.bank.dtype == torch.bfloat16


def test_a_decay_kept_in_float32() -> None:
    """The layer's own parameters say where it is, the projections in which dtype."""
    layer = make_layer().bfloat16()
    layer.A_log, layer.dt_bias = (nn.Parameter(p.float()) for p in (layer.A_log, layer.dt_bias))
    y, cache = layer(make_input(layer).bfloat16())
    assert y.dtype == cache.bank.dtype == torch.bfloat16


def test_hooks_of_all_modules_see_the_projections(kernel_wins: list[int]) -> None:
    """torch's global hooks run where bf16_linear would have gone past them."""
    layer = make_layer(output_gate=True).bfloat16()
    x = make_input(layer, tokens=2).bfloat16()
    seen = []
    handle = nn.modules.module.register_module_forward_pre_hook(lambda m, _: seen.append(m))
    with handle, torch.no_grad():
        layer(x)
    assert {id(getattr(layer, name)) for name in PROJECTIONS} <= {id(m) for m in seen}
    assert kernel_wins == []
    with torch.no_grad():
        layer(x)  # the control
    assert len(kernel_wins) == len(PROJECTIONS)


@pytest.mark.parametrize("name", ["Wq_read", "Wk_write"])
@pytest.mark.parametrize("columns", [-1, 1, 24])
def test_scores_of_another_width_are_refused(name: str, columns: int) -> None:
    layer = make_layer(num_heads=2)
    scores = getattr(layer, name).out_features
    setattr(layer, name, nn.Linear(12, scores + columns))
    with pytest.raises(ValueError, match=rf"_scores: expected \[B, T, {scores}\], got float32 \["):
        layer(make_input(layer))
