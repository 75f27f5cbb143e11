"""The selection's tables: there wherever a layer is, and never from a call that was not real."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from layer_cases import OPTIONS, make_input, make_layer
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from sdm_runtime import SparseDeltaMemory
from sdm_runtime.layer.candidates import CandidateTables, candidate_tables

CPU = torch.device("cpu")
Made = Callable[[SparseDeltaMemory], SparseDeltaMemory]


@pytest.fixture(autouse=True)
def _no_tables_of_others() -> None:
    candidate_tables.cache_clear()


def on_meta(layer: SparseDeltaMemory) -> SparseDeltaMemory:
    with torch.device("meta"):
        return SparseDeltaMemory(layer.args)


def emptied(layer: SparseDeltaMemory) -> SparseDeltaMemory:
    made = on_meta(layer).to_empty(device="cpu")
    made.load_state_dict(layer.state_dict())
    return made


def emptied_again(layer: SparseDeltaMemory) -> SparseDeltaMemory:
    made = copy.deepcopy(layer).to_empty(device="cpu")
    made.load_state_dict(layer.state_dict())
    return made


def assigned(layer: SparseDeltaMemory) -> SparseDeltaMemory:
    made = on_meta(layer)
    made.load_state_dict(layer.state_dict(), assign=True)
    return made


def from_meta(layer: SparseDeltaMemory) -> SparseDeltaMemory:
    made = copy.deepcopy(layer).to("meta")
    made.load_state_dict(layer.state_dict(), assign=True)
    return made


def in_a_fake_mode(layer: SparseDeltaMemory) -> SparseDeltaMemory:
    with FakeTensorMode():
        made = SparseDeltaMemory(layer.args)
    made.load_state_dict(layer.state_dict(), assign=True)
    return made


def in_inference_mode(layer: SparseDeltaMemory) -> SparseDeltaMemory:
    with torch.inference_mode():
        SparseDeltaMemory(layer.args)(make_input(layer))
    return copy.deepcopy(layer)


MADE: dict[str, Made] = {
    "to_empty": emptied,
    "to_empty again": emptied_again,
    "assigned": assigned,
    "from meta": from_meta,
    "fake": in_a_fake_mode,
    "inference": in_inference_mode,
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda layer: pickle.loads(pickle.dumps(layer)),
    "cast": lambda layer: copy.deepcopy(layer).double().float(),
    "all buffers to garbage": lambda layer: copy.deepcopy(layer)._apply(lambda t: t.clone()),
}


@pytest.mark.parametrize("name", MADE)
def test_a_layer_made_in_any_way_selects_the_same(name: str) -> None:
    layer = make_layer(**OPTIONS["heads"])
    x = make_input(layer)
    expected = layer(x)[0]
    candidate_tables.cache_clear()
    given = MADE[name](layer)(x)[0]
    assert torch.equal(given, expected)
    given.sum().backward()


def fake(layer: SparseDeltaMemory, x: torch.Tensor) -> None:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        layer(mode.from_tensor(x))


def functional(layer: SparseDeltaMemory, x: torch.Tensor) -> None:
    torch.func.functionalize(lambda leaf: layer(leaf)[0])(x)


def mapped(layer: SparseDeltaMemory, x: torch.Tensor) -> None:
    torch.func.vmap(lambda leaf: layer(leaf)[0])(x.unsqueeze(0))


def derived(layer: SparseDeltaMemory, x: torch.Tensor) -> None:
    torch.func.grad(lambda leaf: layer(leaf)[0].sum())(x)


def traced(layer: SparseDeltaMemory, x: torch.Tensor) -> None:
    step = make_fx(lambda leaf: layer(leaf)[0], tracing_mode="fake", _allow_non_fake_inputs=True)
    step(x)


@pytest.mark.parametrize("refused", [fake, functional, mapped, derived, traced])
@pytest.mark.parametrize("prepared", [False, True])
def test_a_refused_call_leaves_nothing(refused: Callable[..., None], prepared: bool) -> None:
    layer = make_layer(**OPTIONS["heads"])
    x = make_input(layer)
    expected = layer(x)[0]
    if not prepared:
        layer._write_tables = CandidateTables(layer.args.factor_dims, layer.args.num_writes)
        layer._read_tables = CandidateTables(layer.args.factor_dims, layer.args.num_reads)
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        refused(layer, x)
    assert torch.equal(layer(x)[0], expected)


def test_tables_are_shared_and_made_once() -> None:
    layer, twin = make_layer(), make_layer()
    assert twin._write_tables is layer._write_tables is copy.deepcopy(layer)._write_tables
    assert layer._write_tables.on(CPU) is layer._write_tables.on(CPU)
    assert layer._read_tables is not layer._write_tables  # the control: another k


def test_they_are_no_part_of_the_state() -> None:
    layer = make_layer()
    assert not list(layer.buffers())
    assert {name for name, _ in layer.named_parameters()} == layer.state_dict().keys()
