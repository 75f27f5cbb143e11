"""Decoding chains on a GPU: whole ones, made again, captured, and beside the general way."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from layer_cases import OPTIONS, error, make_input, make_layer
from torch import Tensor, nn

from sdm_runtime import MemoryCache, SparseDeltaMemory, last_dispatch
from sdm_runtime.layer import decoding, prepared
from sdm_runtime.machine.backends import device_profile

CUDA = torch.device("cuda")
BF16 = torch.bfloat16
CALLED = {"scaled activations", "everything"}
DIM = 48


def is_hopper() -> bool:
    return device_profile(torch.device("cuda", 0)).capability[0] == 9


def started(
    batch: int = 2, dim: int = DIM, dtype: torch.dtype = BF16, **options: Any
) -> tuple[SparseDeltaMemory, Tensor, MemoryCache]:
    layer = make_layer(dim, **options).eval().to(dtype).to(CUDA)
    x = make_input(layer, batch=batch, tokens=40).to(dtype).to(CUDA)
    with torch.no_grad():
        _, cache = layer(x[:, :20])
    return layer, x[:, 20:], cache


def generally(
    monkeypatch: pytest.MonkeyPatch, layer: SparseDeltaMemory, x: Tensor, cache: MemoryCache
) -> tuple[Tensor, MemoryCache]:
    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(decoding, "MOST_TOKENS", 0)
        patch.setattr(prepared.PreparedCall, "holds", lambda *given: False)
        return layer(x, cache.clone())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("tokens", [1, 8])
@pytest.mark.parametrize("dtype", [torch.float32, BF16])
@pytest.mark.parametrize("options", OPTIONS)
def test_a_chain_gives_what_the_general_way_gives(
    monkeypatch: pytest.MonkeyPatch, options: str, dtype: torch.dtype, tokens: int, mode: type
) -> None:
    layer, x, cache = started(dtype=dtype, **OPTIONS[options])
    x = x[:, :tokens]
    expected, end = generally(monkeypatch, layer, x, cache)
    with mode():
        first = cache.clone()
        y, after = layer(x, first)
        again, _ = layer(x, MemoryCache(cache.bank.clone(), cache.tokens))
        ran = last_dispatch()
    limit = 2e-5 if dtype == torch.float32 else 0.1
    assert error(y.cpu(), expected.double().cpu()) < limit
    assert error(after.bank.cpu(), end.bank.double().cpu()) < limit
    assert torch.equal(y, again)
    assert ran["route"] == ("general" if options in CALLED else "chain")
    whole = dtype == BF16 and is_hopper() and options not in CALLED and options != "batchnorm"
    if whole:
        assert ran["launches"] <= 6
        assert ran["reason"] == ""


@pytest.mark.parametrize("batch", [1, 8, 32, 200])
def test_batches(monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    layer, x, cache = started(batch, dim=128, num_heads=2, slots_per_head=64)
    x = x[:, :1]
    expected, _ = generally(monkeypatch, layer, x, cache)
    with torch.no_grad():
        for _ in range(2):
            y, _ = layer(x, cache.clone())
            assert error(y.cpu(), expected.double().cpu()) < 0.1
    called = "" if batch <= 128 and is_hopper() else "called as they are: "
    assert last_dispatch()["reason"].startswith(called)
    assert bool(last_dispatch()["reason"]) == bool(called)


def data_of(layer: SparseDeltaMemory) -> None:
    layer.Wk_write.weight.data = layer.Wk_write.weight.data.flip(0).contiguous()


CHANGES: dict[str, Callable[[SparseDeltaMemory], object]] = {
    "another Wo": lambda layer: setattr(layer, "Wo", nn.Linear(DIM, DIM).bfloat16().to(CUDA)),
    "written weights": lambda layer: layer.Wv_write.weight.mul_(2),
    "assigned weights": data_of,
    "loaded weights": lambda layer: layer.load_state_dict(
        {k: 1.1 * v for k, v in layer.state_dict().items()}, assign=True
    ),
    "a hook": lambda layer: layer.b_proj.register_forward_hook(lambda m, a, y: 2 * y),
    "another decay": lambda layer: layer.A_log.add_(1),
    "another epsilon": lambda layer: setattr(layer.readings_norm, "eps", 1.0),
    "another scale": lambda layer: setattr(layer.write_act, "scale", 3.0),
    "wider": lambda layer: layer.float().bfloat16(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_between_calls_counts(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    layer, x, cache = started(num_heads=2, output_gate=True, normalize_readings=True)
    x = x[:, :1]
    with torch.no_grad():
        for _ in range(3):
            before, _ = layer(x, cache.clone())
        CHANGES[change](layer)
        for _ in range(2):
            after, _ = layer(x, cache.clone())
    expected, _ = generally(monkeypatch, layer, x, cache)
    assert error(after.cpu(), expected.double().cpu()) < 0.1
    assert torch.equal(before, after) == (change == "wider")


@pytest.mark.parametrize("options", [{}, {"output_gate": True, "normalize_readings": True}])
def test_steps_in_a_graph(options: dict[str, Any]) -> None:
    layer, x, cache = started(num_heads=2, **options)
    steps = [x[:, t : t + 1].contiguous() for t in range(10)]
    bank = cache.bank.clone()
    with torch.inference_mode():
        eager, now = [], MemoryCache(bank.clone(), 20)
        for step in steps:
            y, now = layer(step, now)
            eager.append(y)
        held = bank.clone()
        for _ in range(2):  # warm, as every capture
            layer(steps[0], MemoryCache(held, 20))
        held.copy_(bank)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured, inside = [], MemoryCache(held, 20)
            for step in steps:
                y, inside = layer(step, inside)
                captured.append(y)
        for _ in range(2):
            held.copy_(bank)
            graph.replay()
            assert all(map(torch.equal, captured, eager))
            assert torch.equal(held, now.bank)
    assert not torch.equal(held, bank)


def test_no_step_waits_for_the_device() -> None:
    layer, x, cache = started(num_heads=2, output_gate=True)
    with torch.no_grad():
        for _ in range(2):
            y, cache = layer(x[:, :1], cache)
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(3):
                y, cache = layer(x[:, :1], cache)
            with pytest.raises(RuntimeError, match="synchroniz"):
                y.sum().item()  # the control
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_other_streams_and_copies_of_the_layer() -> None:
    layer, x, cache = started(num_heads=2)
    twin = copy.deepcopy(layer)
    with torch.no_grad():
        expected = [layer(x[:, :1], cache.clone())[0] for _ in range(2)][-1]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            other, _ = layer(x[:, :1], cache.clone())
            theirs, _ = twin(x[:, :1], cache.clone())
        stream.synchronize()
    assert torch.equal(other, expected)
    assert torch.equal(theirs, expected)


def test_memory_does_not_grow_and_is_given_back() -> None:
    layer, x, cache = started(num_heads=2)
    with torch.no_grad():
        for _ in range(3):
            _, cache = layer(x[:, :1], cache)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        for _ in range(200):
            _, cache = layer(x[:, :1], cache)
        assert torch.cuda.memory_allocated() == before
        del layer, cache
        gc.collect()
        assert torch.cuda.memory_allocated() < before
