"""When a decoding call is made again as it was: chains stand in that only count their runs."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, ClassVar

import pytest
import torch
from layer_cases import make_input, make_layer
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

from sdm_runtime import MemoryCache, SparseDeltaMemory
from sdm_runtime.errors import CudaError, PlanError
from sdm_runtime.layer import decoding, prepared

OPTIONS: dict[str, Any] = {"num_heads": 2, "output_gate": True, "normalize_readings": True}


class Chain:
    """A whole chain on a device that is not there."""

    launches = 6
    runs: ClassVar[list[str]] = []

    def run(self) -> None:
        self.runs.append("recorded")


class Held:
    def __init__(self, *given: object) -> None:
        """As HeldChain."""

    def run(self, given: tuple[Tensor, ...], device: torch.device) -> None:
        rows, bank, y, memory = given
        assert rows.is_contiguous()
        assert rows.data_ptr() % 16 == 0
        assert (bank.shape, y.device, memory.dtype) == ((144, 8), device, torch.int64)
        Chain.runs.append("again")


@pytest.fixture(autouse=True)
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    monkeypatch.setattr(decoding, "kernel_takes", lambda x: x.dtype == torch.bfloat16)
    monkeypatch.setattr(decoding, "HeldChain", Held)
    monkeypatch.setattr(decoding._Call, "_chain", lambda *given: Chain())
    Chain.runs.clear()
    with torch.no_grad():
        yield Chain.runs


def started() -> tuple[SparseDeltaMemory, Tensor, MemoryCache]:
    layer = make_layer(dim=16, **OPTIONS).eval().bfloat16()
    x = make_input(layer, tokens=3).bfloat16()
    _, cache = layer(x)
    return layer, x, cache


def test_the_second_call_of_a_kind_is_made_again(runs: list[str]) -> None:
    layer, x, cache = started()
    for _ in range(3):
        y, cache = layer(x, cache)
        assert (y.shape, y.dtype) == (x.shape, x.dtype)
    assert runs == ["recorded", "again", "again", "again"]
    assert cache.tokens == 12
    layer(x[:, :2], cache)  # another kind
    assert runs[-1] == "recorded"


def replace(name: str) -> Callable[[SparseDeltaMemory], None]:
    return lambda layer: setattr(layer, name, copy.deepcopy(getattr(layer, name)))


def data_of(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[SparseDeltaMemory], None]:
    def assign(layer: SparseDeltaMemory) -> None:
        parameter = layer.get_parameter(name)
        parameter.data = change(parameter.data)

    return assign


def forward_of(layer: SparseDeltaMemory) -> None:
    layer.Wo.forward = torch.relu  # type: ignore[method-assign]


def attribute(name: str, value: object, of: str = "") -> Callable[[SparseDeltaMemory], None]:
    return lambda layer: setattr(layer.get_submodule(of), name, value)


CHANGES: dict[str, Callable[[SparseDeltaMemory], object]] = {
    "another Linear": replace("Wk_write"),
    "another norm": replace("readings_norm"),
    "another A_log": replace("A_log"),
    "a weight elsewhere": data_of("Wq_read.weight", torch.clone),
    "a weight turned": data_of("Wv_write.weight", torch.t),
    "a bias elsewhere": data_of("b_proj.bias", torch.clone),
    "no bias": lambda layer: layer.Wo.register_parameter("bias", None),
    "a hook": lambda layer: layer.a_proj.register_forward_hook(lambda *given: None),
    "a hook before": lambda layer: layer.Wog.register_forward_pre_hook(lambda *given: None),
    "a forward": forward_of,
    "a parametrization": lambda layer: nn.utils.parametrize.register_parametrization(
        layer.Wo, "weight", nn.Identity()
    ),
    "a hook on an activation": lambda layer: layer.read_act.act.register_forward_hook(
        lambda *given: None
    ),
    "another scale": attribute("scale", 2.0, "write_act"),
    "another epsilon": attribute("eps", 1.0, "readings_norm"),
    "the switch": attribute("low_latency_projections", False),
    "another dtype and back": lambda layer: layer.float().bfloat16(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_is_looked_at_again(runs: list[str], change: str) -> None:
    layer, x, cache = started()
    _, cache = layer(x, cache)
    assert runs[-1] == "again"
    (call,) = layer._prepared_calls.by_kind.values()
    assert call.holds(layer, x.device)
    kept = [parameter.data for parameter in layer.parameters()]  # no address comes back
    CHANGES[change](layer)
    assert not call.holds(layer, x.device)
    del kept


def test_global_hooks_and_autocast_count(runs: list[str]) -> None:
    layer, x, _cache = started()
    (call,) = layer._prepared_calls.by_kind.values()
    handle = torch_modules.register_module_forward_hook(lambda *given: None)
    assert not call.holds(layer, x.device)
    handle.remove()
    with torch.autocast("cpu", torch.bfloat16):
        assert not call.holds(layer, x.device)
    assert call.holds(layer, x.device)


def test_gradients_training_and_other_inputs_go_other_ways(runs: list[str]) -> None:
    layer, x, cache = started()
    with torch.enable_grad():
        assert prepared.run_prepared(layer, x, cache) is None
    assert prepared.run_prepared(layer, x, None) is None
    assert prepared.run_prepared(layer, nn.Parameter(x), cache) is None
    wide = MemoryCache(cache.bank.float(), 0)
    assert prepared.run_prepared(layer, x, wide) is None
    strided = MemoryCache(cache.bank.t().contiguous().t(), 0)
    assert prepared.run_prepared(layer, x, strided) is None
    with torch.autograd.forward_ad.dual_level():
        assert prepared.run_prepared(layer, x, cache) is None
    layer.train()
    assert prepared.run_prepared(layer, x, cache) is None
    layer.eval()
    assert prepared.run_prepared(layer, x, cache) is not None


def test_rows_that_are_strided_or_misaligned_are_copied(runs: list[str]) -> None:
    layer, _x, cache = started()
    long = torch.zeros(2, 9, 16, dtype=torch.bfloat16)
    odd = torch.zeros(2 * 3 * 16 + 1, dtype=torch.bfloat16)[1:].view(2, 3, 16)
    for given in (long[:, 2:5], odd):
        _, cache = layer(given, cache)
        assert runs[-1] == "again"


def test_a_copied_layer_has_none_and_a_layer_keeps_few(runs: list[str]) -> None:
    layer, _x, _ = started()
    twin = copy.deepcopy(layer)
    assert not twin._prepared_calls.by_kind
    for batch in range(1, 20):
        layer(make_input(layer, batch=batch, tokens=1).bfloat16())
    assert len(layer._prepared_calls.by_kind) == prepared.PreparedCalls._MOST


def test_nothing_of_a_dropped_layer_stays(runs: list[str]) -> None:
    layer, x, cache = started()
    layer(x, cache)
    weight, bank = weakref.ref(layer.Wo.weight), weakref.ref(cache._bank)
    del cache
    replaced = weakref.ref(layer.Wv_write.weight)
    layer.Wv_write = nn.Linear(16, 16).bfloat16()
    assert replaced() is None
    gc.disable()
    try:
        del layer
        assert weight() is None
        assert bank() is None
    finally:
        gc.enable()


def test_a_chain_that_raises_says_what_it_did_to_the_bank(
    monkeypatch: pytest.MonkeyPatch, runs: list[str]
) -> None:
    layer, x, cache = started()

    def fail(issued: int) -> None:
        def run(*given: object) -> None:
            error = CudaError("on purpose")
            error.issued = issued
            raise error

        monkeypatch.setattr(Held, "run", run)
        with pytest.raises(CudaError, match="on purpose"):
            layer(x, cache)

    version = cache.bank._version
    fail(0)
    assert cache.bank._version == version  # nothing was launched
    fail(1)
    with pytest.raises(RuntimeError, match="one chain of plans has it"):
        _ = cache.bank


def test_an_interrupt_leaves_no_bank_that_looks_untouched(
    monkeypatch: pytest.MonkeyPatch, runs: list[str]
) -> None:
    layer, x, cache = started()

    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Held, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        layer(x, cache)
    with pytest.raises(RuntimeError, match="begun: take a clone"):
        layer(x, cache)


def freed(x: Tensor) -> Tensor:
    x = x.clone()
    x.untyped_storage().resize_(0)
    return x


def zeros_without_memory(x: Tensor) -> Tensor:
    return torch._efficientzerotensor(x.shape, dtype=x.dtype)


@pytest.mark.parametrize(
    "other",
    [freed, zeros_without_memory, torch._to_functional_tensor, torch._neg_view, Tensor.to_sparse],
)
def test_x_that_is_not_its_memory_is_not_taken_for_it(
    other: Callable[[Tensor], Tensor], runs: list[str]
) -> None:
    layer, x, cache = started()
    assert type(other(x)) is Tensor  # the control: its type does not tell
    with suppress(TypeError, ValueError, RuntimeError):  # what else refuses it
        layer(other(x), cache.clone())
    assert "again" not in runs
    layer(x, cache)
    assert runs[-1] == "again"


def test_a_bank_whose_memory_was_freed_is_not_taken(runs: list[str]) -> None:
    layer, x, cache = started()
    other = cache.clone()
    other.bank.untyped_storage().resize_(0)
    with suppress(ValueError):
        layer(x, other)
    assert "again" not in runs


@pytest.mark.filterwarnings("ignore")
def test_a_trace_is_not_given_an_empty_result(runs: list[str]) -> None:
    layer, x, cache = started()
    layer.requires_grad_(False)
    runs.clear()
    with suppress(RuntimeError, TypeError):  # the operation is in no trace either
        torch.jit.trace(lambda given: layer(given, cache.clone())[0], x, check_trace=False)
    assert runs == []
    layer(x, cache)  # the control
    assert runs == ["again"]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_chain_that_cannot_be_made_or_bound_leaves_the_bank(
    monkeypatch: pytest.MonkeyPatch, runs: list[str], mode: Callable[[], Any]
) -> None:
    with mode():
        layer, x, cache = started()
        before = cache.bank.clone()

        def refuse(*given: object) -> None:
            raise PlanError("on purpose")

        monkeypatch.setattr(Held, "run", refuse)
        with pytest.raises(PlanError, match="on purpose"):
            layer(x, cache)
        assert torch.equal(cache.bank, before)
        monkeypatch.setattr(decoding._Call, "_chain", refuse)
        layer.A_log = nn.Parameter(layer.A_log.clone())  # nothing was prepared for it
        with pytest.raises(PlanError, match="on purpose"):
            layer(x, cache)
        assert torch.equal(cache.bank, before)
