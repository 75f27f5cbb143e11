"""Each parameter is initialized by itself: what a framework's loader needs for those it misses.

The loader here does as the usual ones: it builds the model on meta, assigns what the checkpoint has
and marks it, gives the rest memory without values, and then has the model initialize the modules in
which something is missing, children first, while torch.nn.init leaves marked tensors alone.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from layer_cases import BASE, OPTIONS, make_input, make_layer
from torch import Tensor, nn

from sdm_runtime import SparseDeltaMemory, SparseDeltaMemoryArgs

EVERYTHING = {**OPTIONS["everything"], "write_act": "PReLU"}
GUARDED = ("uniform_", "normal_", "constant_", "ones_", "zeros_", "kaiming_uniform_")
GARBAGE = -77.0
State = dict[str, Tensor]


class Model(nn.Module):
    """A projection, a layer and a projection; without initialization of its own."""

    def __init__(self, **options: object) -> None:
        super().__init__()
        self.before = nn.Linear(12, 12)
        self.layer = SparseDeltaMemory(SparseDeltaMemoryArgs(12, **{**BASE, **options}))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.before(x))[0]


class AsksForAll(Model):
    """As frameworks' models are usually written."""

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, SparseDeltaMemory | nn.Linear):
            module.reset_parameters()


class AsksForTheMissing(Model):
    """Without need of a guard."""

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, SparseDeltaMemory):
            module.reset_parameters(n for n, t in tensors(module).items() if not is_loaded(t))
        elif module is self.before:
            module.reset_parameters()


def tensors(module: nn.Module) -> State:
    return dict(itertools.chain(module.named_parameters(), module.named_buffers()))


def is_loaded(tensor: Tensor) -> bool:
    return getattr(tensor, "_loaded", False)


@contextmanager
def guard() -> Iterator[None]:
    """torch.nn.init leaves loaded tensors alone."""
    originals = {name: getattr(nn.init, name) for name in GUARDED}

    def guarded(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @functools.wraps(original)
        def initialize(tensor: Tensor, *given: object, **options: object) -> Tensor:
            return tensor if is_loaded(tensor) else original(tensor, *given, **options)

        return initialize

    for name, original in originals.items():
        setattr(nn.init, name, guarded(original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(nn.init, name, original)


def load(kind: type[Model], state: State, **options: object) -> tuple[Model, list[str]]:
    """The model and the names that the state lacks."""
    with torch.device("meta"):
        model: Any = kind(**options)
    copies = {name: tensor.clone() for name, tensor in state.items()}
    model.load_state_dict(copies, strict=False, assign=True)
    missing = [name for name in model.state_dict() if name not in state]
    tensor: Any
    for name, tensor in tensors(model).items():
        if name in state:
            tensor._loaded = True
            continue
        holder, _, leaf = name.rpartition(".")
        garbage = torch.full_like(tensor, GARBAGE, device="cpu")
        table = model.get_submodule(holder)
        setattr(table, leaf, nn.Parameter(garbage) if leaf in table._parameters else garbage)
    if hasattr(model, "_init_weights"):
        with guard() if kind is AsksForAll else torch.no_grad():
            for module in reversed(list(model.modules())):
                if not all(map(is_loaded, tensors(module).values())):
                    model._init_weights(module)
    return model, missing


def checkpoint(without: tuple[str, ...] = (), **options: object) -> State:
    """Values unlike any initial ones."""
    torch.manual_seed(3)
    model = Model(**options)
    state = {
        n: t + torch.rand(t.shape) + 1 if t.is_floating_point() else t + 7
        for n, t in model.state_dict().items()
    }
    return {name: value for name, value in state.items() if name not in without}


def initial(name: str, value: Tensor) -> bool:
    """Whether a tensor has values that construction could have given it."""
    leaf = name.rpartition(".")[2]
    if leaf in ("memory", "running_mean", "num_batches_tracked"):
        return not value.any()
    if leaf == "running_var" or "bn.weight" in name or "norm.weight" in name:
        return bool((value == 1).all())
    if "bn.bias" in name or "norm.bias" in name:
        return not value.any()
    if leaf == "A_log":
        return bool((value >= -9.3).all() and (value <= 2.78).all())
    if leaf == "dt_bias":
        return bool((value > -7).all() and (value < -2).all())
    if "act." in name:
        return bool((value == 0.25).all())
    return bool(value.any() and (value.abs() <= 12**-0.5).all())


def check(model: Model, state: State, missing: list[str]) -> None:
    for name, value in model.state_dict().items():
        if name in missing:
            assert initial(name, value), name
        else:
            assert torch.equal(value, state[name]), name
    model(make_input(model.layer)).sum().backward()


KINDS = [AsksForAll, AsksForTheMissing]
LACKING = {
    "nothing": (),
    "the memory": ("layer.memory",),
    "the decay": ("layer.A_log", "layer.dt_bias"),
    "a weight and another's bias": ("layer.Wo.weight", "layer.Wv_write.bias"),
    "a norm": ("layer.readings_norm.weight", "layer.readings_norm.bias"),
    "statistics": ("layer.query_bn.running_mean", "layer.query_bn.running_var"),
    "a slope": ("layer.write_act.act.weight",),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LACKING)
def test_a_loader_initializes_what_is_missing_alone(name: str, kind: type[Model]) -> None:
    state = checkpoint(LACKING[name], **EVERYTHING)
    model, missing = load(kind, state, **EVERYTHING)
    assert missing == sorted(LACKING[name], key=list(model.state_dict()).index)
    check(model, state, missing)


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_with_nothing_of_the_layer(kind: type[Model]) -> None:
    state = {n: t for n, t in checkpoint(**EVERYTHING).items() if n.startswith("before.")}
    model, missing = load(kind, state, **EVERYTHING)
    assert len(missing) > 20
    check(model, state, missing)


def test_a_framework_without_initialization() -> None:
    """Its user asks for the names that it reports."""
    lacking = ("layer.memory", "layer.Wo.bias", "layer.key_bn.running_mean")
    state = checkpoint(lacking, **EVERYTHING)
    model, missing = load(Model, state, **EVERYTHING)
    assert all((model.state_dict()[name] == GARBAGE).all() for name in lacking)  # the control
    model.layer.reset_parameters(name.removeprefix("layer.") for name in missing)
    check(model, state, missing)


@pytest.mark.parametrize("name", [n for n, _ in make_layer(**EVERYTHING).named_parameters()])
def test_each_parameter_by_itself(name: str) -> None:
    layer = make_layer(**EVERYTHING)
    before = {n: t.clone() for n, t in layer.state_dict().items()}
    held, versions = tensors(layer), {n: t._version for n, t in tensors(layer).items()}
    layer.reset_parameters([name])
    assert initial(name, layer.state_dict()[name].detach())
    for other, tensor in tensors(layer).items():
        assert tensor is held[other]
        if other != name:
            assert torch.equal(tensor, before[other]), other
            assert tensor._version == versions[other], other


def test_no_names_and_none() -> None:
    layer = make_layer(**EVERYTHING)
    before = {n: t.clone() for n, t in layer.state_dict().items()}
    layer.reset_parameters([])
    assert all(torch.equal(t, before[n]) for n, t in layer.state_dict().items())
    layer.reset_parameters()
    assert all(initial(n, t) for n, t in layer.state_dict().items())


class Strange(nn.Module):
    """A projection that cannot initialize itself."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.weight = nn.Parameter(inner.weight.detach())

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.t()


@pytest.mark.parametrize(
    ("names", "kind", "message"),
    [
        ("memory", TypeError, "names: expected names of parameters, got the str 'memory'"),
        ([3], TypeError, "names: expected names of parameters, got 3"),
        (["A_log", "nothing"], ValueError, "names: expected parameters or buffers of the layer, "),
        (["A_log", "Wo.weight"], ValueError, "names: expected tensors of modules with a reset_par"),
        (None, ValueError, r"names: .*got Wo\.weight of a Strange"),
    ],
)
def test_what_cannot_be_initialized_is_refused(names: Any, kind: type, message: str) -> None:
    layer: Any = make_layer()
    layer.Wo = Strange(layer.Wo)
    before = {n: t.clone() for n, t in layer.state_dict().items()}
    with pytest.raises(kind, match=rf"^\[SparseDeltaMemory\] {message}"):
        layer.reset_parameters(names)
    assert all(torch.equal(t, before[n]) for n, t in layer.state_dict().items())
    layer.reset_parameters(n for n in before if not n.startswith("Wo."))
    assert initial("A_log", layer.A_log.detach())


def test_a_module_in_a_sequence_is_found() -> None:
    layer: Any = make_layer()
    first, last = nn.Linear(12, 12), nn.Linear(12, 12)
    layer.Wo = nn.Sequential(first, nn.GELU(), last)
    kept = first.weight.clone()
    with torch.no_grad():
        last.weight.fill_(GARBAGE)
    layer.reset_parameters(["Wo.2.weight"])
    assert initial("Wo.weight", last.weight.detach())
    assert torch.equal(first.weight, kept)
