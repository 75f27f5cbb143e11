"""What is left of a cache when the call that it was handed to raises."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from layer_cases import make_input, make_layer
from torch import nn
from torch.utils.checkpoint import checkpoint

from sdm_runtime import MemoryCache, SparseDeltaMemory
from sdm_runtime.layer import decoding, memory_layer
from sdm_runtime.ops.forward import run as forward

LOST = "raised after it had begun to advance the bank in place"
ERRORS = [torch.OutOfMemoryError, KeyboardInterrupt]
FEW, MANY = 1, 20


def failing(error: type[BaseException], run: Callable[..., object] | None = None) -> object:
    """A function that raises, after it has called `run`."""

    def fail(*given: object, **options: object) -> None:
        if run is not None:
            run(*given, **options)
        raise error("on purpose")

    return fail


def in_wo(patch: pytest.MonkeyPatch, layer: SparseDeltaMemory, error: type) -> None:
    patch.setattr(layer.Wo, "forward", failing(error))


def before_the_operation(patch: pytest.MonkeyPatch, _: object, error: type) -> None:
    patch.setattr(decoding, "MOST_TOKENS", 0)
    patch.setattr(memory_layer, "sdm_write_read", failing(error))


def within_the_operation(patch: pytest.MonkeyPatch, _: object, error: type) -> None:
    patch.setattr(decoding, "MOST_TOKENS", 0)
    patch.setattr(forward, "_run_segment", failing(error, forward._run_segment))


def before_the_step(patch: pytest.MonkeyPatch, _: object, error: type) -> None:
    patch.setattr(decoding, "step_plans", failing(error))


def behind_the_step(patch: pytest.MonkeyPatch, layer: SparseDeltaMemory, error: type) -> None:
    patch.setattr(layer, "_merge", failing(error))


PLACES = [in_wo, before_the_operation, within_the_operation, before_the_step, behind_the_step]


def started() -> tuple[SparseDeltaMemory, torch.Tensor, MemoryCache]:
    layer = make_layer().eval()
    x = make_input(layer)
    return layer, x, layer(x)[1]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("place", PLACES)
def test_a_call_of_few_tokens_leaves_the_cache_as_it_was(
    monkeypatch: pytest.MonkeyPatch, place: Callable[..., None], error: type, mode: type
) -> None:
    with mode():
        layer, x, cache = started()
        before = cache.bank.clone()
        with monkeypatch.context() as patch:
            place(patch, layer, error)
            with pytest.raises(error):
                layer(x[:, :FEW], cache)
        expected, _ = layer(x, MemoryCache(before.clone(), cache.tokens))
        assert torch.equal(cache.bank, before)
        given, _ = layer(x, cache)
        assert torch.equal(given, expected)
    with pytest.raises(RuntimeError, match="advanced its bank in place"):
        _ = cache.bank


@pytest.mark.parametrize("place", [in_wo, within_the_operation])
def test_a_call_of_many_tokens_loses_it_by_name(
    monkeypatch: pytest.MonkeyPatch, place: Callable[..., None]
) -> None:
    with torch.no_grad():
        layer, x, cache = started()
        address = cache.bank.data_ptr()
        with monkeypatch.context() as patch:
            place(patch, layer, torch.OutOfMemoryError)
            with pytest.raises(torch.OutOfMemoryError):
                layer(x[:, :MANY], cache)
        with pytest.raises(RuntimeError, match=LOST):
            layer(x, cache)
        with pytest.raises(RuntimeError, match=r"take a clone\(\) before a long call"):
            cache.clone()
    assert LOST in repr(cache)
    assert cache._bank.data_ptr() == address  # no copy was kept


def test_a_call_of_many_tokens_that_did_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        layer, x, cache = started()
        before = cache.bank.clone()
        with monkeypatch.context() as patch:
            before_the_operation(patch, layer, torch.OutOfMemoryError)
            with pytest.raises(torch.OutOfMemoryError):
                layer(x[:, :MANY], cache)
        assert torch.equal(cache.bank, before)


def test_the_next_try_may_be_where_the_error_is_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        layer, x, cache = started()
        expected, _ = layer(x[:, :FEW], cache.clone())
        try:
            with monkeypatch.context() as patch:
                in_wo(patch, layer, torch.OutOfMemoryError)
                layer(x[:, :FEW], cache)
        except torch.OutOfMemoryError:
            given, _ = layer(x[:, :FEW], cache)
    assert torch.equal(given, expected)


def test_a_call_that_still_runs_keeps_the_cache() -> None:
    """Another thread cannot tell whether the call has raised."""
    layer, x, cache = started()
    cache = cache.clone()
    inside, finish = threading.Event(), threading.Event()

    def wait(*_: object) -> None:
        inside.set()
        assert finish.wait(60)

    handle = layer.Wo.register_forward_pre_hook(wait)
    results = []

    def call() -> None:
        with torch.no_grad():
            results.append(layer(x[:, :FEW], cache))

    thread = threading.Thread(target=call)
    thread.start()
    assert inside.wait(60)
    with torch.no_grad(), pytest.raises(RuntimeError, match="a call in another thread has it"):
        layer(x[:, :FEW], cache)
    assert "a call has it" in repr(cache)
    finish.set()
    thread.join()
    handle.remove()
    assert len(results) == 1
    with pytest.raises(RuntimeError, match="advanced its bank in place"):
        _ = cache.bank


def test_arguments_that_are_refused_leave_the_cache() -> None:
    with torch.no_grad():
        layer, x, cache = started()
        with pytest.raises(ValueError, match="x: expected"):
            layer(x[0], cache)
        layer(x, cache)


class Block(nn.Module):
    """What is usually checkpointed: the layer's input is made inside."""

    def __init__(self, layer: SparseDeltaMemory) -> None:
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(12), layer

    def forward(self, x: torch.Tensor, cache: MemoryCache) -> tuple[torch.Tensor, MemoryCache]:
        return self.layer(self.norm(x), cache)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("train", [False, True])
def test_checkpoint_of_a_continued_call(train: bool, reentrant: bool) -> None:
    block = Block(make_layer()).train(train)
    x = make_input(block.layer)
    _, _, cache = started()
    cache = cache.clone()
    before = cache.bank.clone()
    y, expected_cache = block(x, cache)
    expected_bank = expected_cache.bank.clone()
    y.square().sum().backward()
    expected = [p.grad.clone() for p in block.parameters() if p.grad is not None]
    block.zero_grad()
    leaf = x.clone().requires_grad_()
    y, after = checkpoint(block, leaf, cache, use_reentrant=reentrant)
    assert torch.equal(after.bank, expected_bank)
    y.square().sum().backward()
    given = [p.grad for p in block.parameters() if p.grad is not None]
    assert len(given) == len(expected) > 10
    assert all(torch.equal(a, b) for a, b in zip(given, expected, strict=True))
    assert torch.equal(cache.bank, before)
