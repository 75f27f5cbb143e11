"""The selection's tables: there wherever a layer is, and never from a call that was not real."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from threading import Barrier, Thread
from typing import Any

import pytest
import torch
from layer_cases import OPTIONS, make_input, make_layer
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from sdm_runtime import SparseDeltaMemory
from sdm_runtime.layer import candidates
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


def renew_tables(layer: SparseDeltaMemory) -> None:
    layer._write_tables = CandidateTables(layer.args.factor_dims, layer.args.num_writes)
    layer._read_tables = CandidateTables(layer.args.factor_dims, layer.args.num_reads)


@pytest.mark.parametrize("refused", [functional, mapped, derived])
@pytest.mark.parametrize("prepared", [False, True])
def test_a_refused_call_leaves_nothing(refused: Callable[..., None], prepared: bool) -> None:
    layer = make_layer(**OPTIONS["heads"])
    x = make_input(layer)
    expected = layer(x)[0]
    if not prepared:
        renew_tables(layer)
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        refused(layer, x)
    assert torch.equal(layer(x)[0], expected)


@pytest.mark.parametrize("unreal", [fake, traced])
@pytest.mark.parametrize("prepared", [False, True])
def test_a_call_that_is_not_real_leaves_nothing(
    unreal: Callable[..., None], prepared: bool
) -> None:
    layer = make_layer(**OPTIONS["heads"])
    x = make_input(layer)
    expected = layer(x)[0]
    if not prepared:
        renew_tables(layer)
    unreal(layer, x)
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


def packed_sum(tables: CandidateTables) -> Callable[[Tensor], Tensor]:
    """A function that reads the table for its argument, and is fine under every transform."""
    return lambda x: (tables.on(x.device).packed.float().sum() + x).sum()


def exported(read: Callable[[Tensor], Tensor], x: Tensor) -> None:
    class Reads(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return read(x)

    torch.export.export(Reads(), (x,), strict=False)


def broken_off(read: Callable[[Tensor], Tensor], x: Tensor) -> None:
    def step(x: Tensor) -> Tensor:
        doubled = x * 2
        torch._dynamo.graph_break()
        return read(doubled)

    torch.compile(step, backend="aot_eager")(x)


def faked(read: Callable[[Tensor], Tensor], x: Tensor) -> None:
    with FakeTensorMode() as mode:
        read(mode.from_tensor(x))


def in_a_functional_mode(read: Callable[[Tensor], Tensor], x: Tensor) -> None:
    with FunctionalTensorMode():
        read(x)


def on_a_meta_default(read: Callable[[Tensor], Tensor], x: Tensor) -> None:
    with torch.device("meta"):
        read(x)


# Each with its function as it is, nothing refused: what such a call makes must live for it alone.
UNREAL: dict[str, Callable[[Callable[[Tensor], Tensor], Tensor], Any]] = {
    "fake": faked,
    "functional mode": in_a_functional_mode,
    "functionalize": lambda read, x: torch.func.functionalize(read)(x),
    "functionalized gradient": lambda read, x: torch.func.functionalize(torch.func.grad(read))(x),
    "gradient": lambda read, x: torch.func.grad(read)(x),
    "vmap": lambda read, x: torch.func.vmap(read)(x),
    "jvp": lambda read, x: torch.func.jvp(read, (x,), (x,)),
    "hessian": lambda read, x: torch.func.hessian(read)(x),
    "fx": lambda read, x: make_fx(read)(x),
    "fx, symbolic": lambda read, x: make_fx(read, tracing_mode="symbolic")(x),
    "export": exported,
    "compile": lambda read, x: torch.compile(read, backend="aot_eager")(x),
    "compile, broken": broken_off,
    "meta": on_a_meta_default,
}


@pytest.mark.parametrize("name", UNREAL)
def test_no_tensor_without_memory_stays(name: str) -> None:
    tables = CandidateTables((8, 8), 4)
    wanted = candidate_tables((8, 8), 4).on(CPU)
    UNREAL[name](packed_sum(tables), torch.randn(3))
    for kept in tables._by_device.values():
        made = [kept.packed, *kept.positions, *(g for sums in kept.sums for g in sums.groups)]
        assert all(candidates.is_memory(x) for x in made)
    assert tables.on(CPU).packed.data_ptr()
    assert torch.equal(tables.on(CPU).packed, wanted.packed)


@pytest.mark.parametrize("name", ["fake", "functionalize", "functional mode"])
def test_what_would_stay_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without the look at its memory the next call meets what has none."""
    monkeypatch.setattr(candidates, "is_memory", lambda made: True)
    tables = CandidateTables((8, 8), 4)
    UNREAL[name](packed_sum(tables), torch.randn(3))
    monkeypatch.undo()
    assert not candidates.is_memory(tables.on(CPU).packed)


def holders(layer: SparseDeltaMemory) -> dict[str, SparseDeltaMemory]:
    return {
        "the layer": layer,
        "a copy": copy.copy(layer),
        "a deep copy": copy.deepcopy(layer),
        "from a file": pickle.loads(pickle.dumps(layer)),
    }


@pytest.mark.parametrize("name", holders(make_layer()))
def test_many_other_kinds_leave_the_table_of_a_layer(name: str) -> None:
    """A captured graph and a chain that was prepared have the address, nothing else."""
    layer = holders(make_layer())[name]
    addresses = [t.on(CPU).packed.data_ptr() for t in (layer._write_tables, layer._read_tables)]
    loose = weakref.ref(candidate_tables((3, 7), 2))  # the control: nobody holds these
    for width in range(2, 202):
        candidate_tables((width, 2), 1).on(CPU)
    gc.collect()
    assert loose() is None
    assert candidate_tables(layer.args.factor_dims, layer.args.num_writes) is not (
        layer._write_tables
    )
    assert addresses == [
        t.on(CPU).packed.data_ptr() for t in (layer._write_tables, layer._read_tables)
    ]
    x = make_input(layer)
    assert torch.equal(layer(x)[0], copy.deepcopy(layer)(x)[0])


def test_threads_that_make_a_table_at_once_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that another thread replaces would be freed under a graph that reads it."""
    tables, both, given = CandidateTables((8, 8), 4), Barrier(2), []
    is_memory = candidates.is_memory

    def met(made: Tensor) -> bool:
        both.wait(60)  # both have made theirs, none is kept yet
        return is_memory(made)

    monkeypatch.setattr(candidates, "is_memory", met)
    threads = [Thread(target=lambda: given.append(tables.on(CPU))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert given[0] is given[1] is tables.on(CPU)
