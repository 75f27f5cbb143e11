"""Which parameters an optimizer should not decay: decided by the module that holds them."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from layer_cases import OPTIONS, make_layer
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.utils import parametrizations, parametrize

import sdm_runtime
from sdm_runtime import SparseDeltaMemory, split_weight_decay

OWN = {"A_log", "dt_bias", "memory"}


def exempt(module: nn.Module) -> set[str]:
    """Names of the exempt; every parameter is in one list, once, in the module's order."""
    lists = split_weight_decay(module)
    names = {id(p): name for name, p in module.named_parameters()}
    given = [[names[id(p)] for p in part] for part in lists]
    assert sorted(itertools.chain(*given)) == sorted(names.values())
    assert all(part == [n for n in names.values() if n in part] for part in given)
    return set(given[1])


def on_meta(layer: SparseDeltaMemory) -> SparseDeltaMemory:
    with torch.device("meta"):
        return SparseDeltaMemory(layer.args)


def expected(layer: SparseDeltaMemory) -> set[str]:
    biases = {name for name, _ in layer.named_parameters() if name.endswith(".bias")}
    norms = {"readings_norm.weight", "query_bn.weight", "key_bn.weight"}
    return OWN | biases | (norms if layer.query_bn is not None else set())


def assigned() -> SparseDeltaMemory:
    layer = on_meta(make_layer())
    layer.load_state_dict(make_layer().state_dict(), assign=True)
    return layer


def swapped() -> SparseDeltaMemory:
    layer = make_layer().double()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        layer.load_state_dict(make_layer().state_dict())
        return layer.float()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def replaced() -> SparseDeltaMemory:
    layer = make_layer()
    for name in OWN:
        setattr(layer, name, nn.Parameter(getattr(layer, name).detach().clone()))
    return layer


def emptied() -> SparseDeltaMemory:
    return on_meta(make_layer()).to_empty(device="cpu")


MADE = {
    "plain": make_layer,
    "on meta": lambda: on_meta(make_layer()),
    "given memory": emptied,
    "assigned": assigned,
    "swapped": swapped,
    "replaced": replaced,
    "double": lambda: make_layer().double(),
    "copied": lambda: copy.deepcopy(make_layer()),
    "pickled": lambda: pickle.loads(pickle.dumps(make_layer())),
    "frozen": lambda: make_layer().requires_grad_(False),
}


@pytest.mark.parametrize("name", MADE)
def test_a_layers_own_parameters_are_told_apart(name: str) -> None:
    layer = MADE[name]()
    assert exempt(layer) == expected(layer)
    assert exempt(layer) >= OWN


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_keeps_vectors_from_decay(name: str) -> None:
    layer = make_layer(**OPTIONS[name])
    names = exempt(layer)
    assert ("memory" in names) == (layer.memory is not None)
    assert {n for n, p in layer.named_parameters() if p.ndim < 2} == names - {"memory"}


def test_a_mark_on_a_parameter_says_nothing() -> None:
    linear = nn.Linear(3, 3)
    weight: Any = linear.weight
    weight._no_weight_decay = True
    assert exempt(linear) == {"bias"}


def test_a_learned_activations_slope() -> None:
    assert "read_act.act.weight" in exempt(make_layer(read_act="PReLU"))


class LlamaRMSNorm(nn.Module):
    """A norm of another library, known by its name alone."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))


class Scaled(LlamaRMSNorm):
    """Known by its base."""


class RMSNorm2d(LlamaRMSNorm): ...


class Layernorm(LlamaRMSNorm): ...


class GatedNormalization(LlamaRMSNorm): ...


class NormalizedScale(nn.Module):
    """No norm: a factor for something that was normalized."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))


class LayerNormLinear(nn.Module):
    """A norm and a projection in one module, as fused libraries have them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer_norm_weight = nn.Parameter(torch.ones(4))
        self.weight = nn.Parameter(torch.ones(4, 4))
        self.bias = nn.Parameter(torch.zeros(4))


class NormedAttention(nn.Module):
    """Holds a norm's weight under a name that says so."""

    def __init__(self) -> None:
        super().__init__()
        self.q_norm_weight = nn.Parameter(torch.ones(4))
        self.gain = nn.Parameter(torch.ones(4))


class Lowercase(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.biased = nn.Parameter(torch.ones(4))
        self.enormous = nn.Parameter(torch.ones(4))


MODULES: dict[str, tuple[nn.Module, set[str]]] = {
    "linear": (nn.Linear(3, 3), {"bias"}),
    "embedding": (nn.Embedding(3, 3), set()),
    "convolution": (nn.Conv1d(3, 3, 2), {"bias"}),
    "layer norm": (nn.LayerNorm(3), {"weight", "bias"}),
    "layer norm of images": (nn.LayerNorm([2, 3, 3]), {"weight", "bias"}),
    "rms norm": (nn.RMSNorm(3), {"weight"}),
    "group norm": (nn.GroupNorm(2, 4), {"weight", "bias"}),
    "batch norm": (nn.BatchNorm2d(3), {"weight", "bias"}),
    "synchronized": (nn.SyncBatchNorm(3), {"weight", "bias"}),
    "instance norm": (nn.InstanceNorm1d(3, affine=True), {"weight", "bias"}),
    "attention": (nn.MultiheadAttention(4, 2), {"in_proj_bias", "out_proj.bias"}),
    "recurrent": (nn.GRU(3, 3), {"bias_ih_l0", "bias_hh_l0"}),
    "another norm": (LlamaRMSNorm(), {"weight"}),
    "a norm's subclass": (Scaled(), {"weight"}),
    "a numbered norm": (RMSNorm2d(), {"weight"}),
    "lower case": (Layernorm(), {"weight"}),
    "the long word": (GatedNormalization(), {"weight"}),
    "no norm": (NormalizedScale(), set()),
    "fused": (LayerNormLinear(), {"layer_norm_weight", "bias"}),
    "by the parameter's name": (NormedAttention(), {"q_norm_weight"}),
    "words within words": (Lowercase(), set()),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_of_torch_and_others_are_told_apart(name: str) -> None:
    module, names = MODULES[name]
    assert exempt(module) == names


def test_a_module_without_parameters_gives_none() -> None:
    assert split_weight_decay(nn.GELU()) == ([], [])


def test_wrapped_modules_count_alike() -> None:
    layer = make_layer(**OPTIONS["everything"])
    names = expected(layer)
    wrappers: tuple[Any, ...] = (nn.Sequential, checkpoint_wrapper, torch.compile)
    for wrapper in wrappers:
        given = exempt(wrapper(copy.deepcopy(layer)))
        assert {re.sub(r"^(0|_orig_mod)\.", "", name) for name in given} == names


def test_parametrized_modules_count_alike() -> None:
    layer = make_layer()
    parametrizations.weight_norm(layer.Wo)
    parametrize.register_parametrization(layer, "A_log", nn.Identity())
    parametrize.register_parametrization(layer.Wo, "bias", nn.Identity())
    names = expected(layer)
    assert "parametrizations.A_log.original" in exempt(layer)
    assert "Wo.parametrizations.bias.original" in exempt(layer)
    renamed = {"parametrizations.A_log.original", "Wo.parametrizations.bias.original"}
    assert exempt(layer) == (names - {"A_log", "Wo.bias"}) | renamed


class Scripted(nn.Module):
    """Norms of torch and of others, a slope, and parameters of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.images = nn.Linear(4, 4), nn.LayerNorm(4), nn.BatchNorm1d(4)
        self.slope, self.other = nn.PReLU(), RMSNorm2d()
        self.gain = nn.Parameter(torch.ones(4))
        self.table = nn.LayerNorm([2, 4])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.slope(self.images(self.norm(self.linear(x)))) * self.gain
        return self.table(x * self.other.weight)


def loaded(module: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(module), file)
    file.seek(0)
    return torch.jit.load(file)


JIT: dict[str, Callable[[nn.Module], nn.Module]] = {
    "scripted": torch.jit.script,
    "traced": lambda module: torch.jit.trace(module, torch.zeros(2, 4)),
    "loaded": loaded,
    "a part": lambda module: nn.Sequential(torch.jit.script(module)),
}


@pytest.mark.parametrize("name", JIT)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_modules_of_the_jit_count_by_their_names(name: str) -> None:
    module = Scripted()
    given = {parameter.removeprefix("0.") for parameter in exempt(JIT[name](module))}
    assert given == exempt(module)
    assert {"gain", "linear.weight"} & given == set()
    assert {"norm.weight", "table.weight", "other.weight", "slope.weight"} < given


EXPORTED = {
    "module": lambda program: program.module(),
    "unflattened": torch.export.unflatten,
    "a part": lambda program: nn.Sequential(nn.Linear(3, 3), program.module()),
}


@pytest.mark.parametrize("name", EXPORTED)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_graphs_that_lost_their_modules_are_refused(name: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    module = EXPORTED[name](torch.export.export(model, (torch.zeros(2, 4),)))
    with pytest.raises(ValueError, match=r"^\[split_weight_decay\] module: .* holds 0\.weight, of"):
        split_weight_decay(module)


def test_graphs_that_keep_their_modules() -> None:
    """The control: torch.fx leaves torch's modules in a graph, and none of one's own."""
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    assert exempt(torch.fx.symbolic_trace(model)) == {"0.bias", "1.weight", "1.bias"}
    with pytest.raises(ValueError, match=r"a graph \(Scripted\) that holds gain, of"):
        split_weight_decay(torch.fx.symbolic_trace(Scripted()))


def test_tied_parameters_are_counted_once() -> None:
    layer, other = make_layer(), nn.Linear(12, 12)
    other.weight, other.bias = layer.Wo.weight, layer.Wo.bias
    model = nn.ModuleList([other, layer, layer])
    decayed, kept = split_weight_decay(model)
    assert len(decayed) + len(kept) == len(list(layer.parameters()))
    assert len(kept) == len(expected(layer))
    # Exempt where one of its holders says so, in either order.
    table = nn.Embedding(36, 12)
    table.weight = layer.memory
    for order in ([table, layer], [layer, table]):
        _, kept = split_weight_decay(nn.ModuleList(order))
        assert any(p is layer.memory for p in kept)


@pytest.fixture
def one_process(tmp_path):
    """A process group of this process alone."""
    store = f"file://{tmp_path}/store"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_process")
def test_sharded_modules_count_alike() -> None:
    layer = make_layer(**OPTIONS["everything"])
    names = expected(layer)
    wrapped = nn.parallel.DistributedDataParallel(copy.deepcopy(layer))
    assert {name.removeprefix("module.") for name in exempt(wrapped)} == names
    mesh = torch.distributed.init_device_mesh("cpu", (1,))
    for module in (layer.Wo, layer.readings_norm, layer):
        fully_shard(module, mesh=mesh)
    assert exempt(layer) == names


@pytest.mark.usefixtures("one_process")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_flat_parameters_are_refused_without_views() -> None:
    """Those of several modules in one tensor have no kind; with views for each they have."""
    layer = make_layer(**OPTIONS["everything"])
    flat = FullyShardedDataParallel(copy.deepcopy(layer), device_id=torch.device("cpu"))
    with pytest.raises(ValueError, match=r"^\[split_weight_decay\] module: expected .*use_orig_pa"):
        split_weight_decay(flat)
    flat = FullyShardedDataParallel(
        copy.deepcopy(layer), device_id=torch.device("cpu"), use_orig_params=True
    )
    names = {name.removeprefix("_fsdp_wrapped_module.") for name in exempt(flat)}
    assert names == expected(layer)


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^\[split_weight_decay\] module: expected .* got list"):
        split_weight_decay([nn.Parameter(torch.zeros(1))])  # type: ignore[arg-type]


def test_it_is_a_public_name() -> None:
    assert "split_weight_decay" in sdm_runtime.__all__
    assert sdm_runtime.split_weight_decay is sdm_runtime.layer.split_weight_decay
