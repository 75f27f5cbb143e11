"""Copies of a cache have banks of their own, however they are made."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from layer_cases import make_input, make_layer

from sdm_runtime import MemoryCache, SparseDeltaMemory


def saved(cache: MemoryCache) -> MemoryCache:
    file = io.BytesIO()
    torch.save(cache, file)
    file.seek(0)
    with torch.serialization.safe_globals([MemoryCache]):
        return torch.load(file, weights_only=True)


def sent(cache: MemoryCache) -> MemoryCache:
    """As to another process, which would share a tensor's memory."""
    usual = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy("file_system")
    try:
        return pickle.loads(bytes(ForkingPickler.dumps(cache)))
    finally:
        torch.multiprocessing.set_sharing_strategy(usual)


COPIES: dict[str, Callable[[MemoryCache], MemoryCache]] = {
    "clone": MemoryCache.clone,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda cache: pickle.loads(pickle.dumps(cache)),
    "save": saved,
    "send": sent,
}


def start(layer: SparseDeltaMemory, x: torch.Tensor) -> MemoryCache:
    with torch.no_grad():
        return layer(x)[1]


@pytest.mark.parametrize("name", COPIES)
def test_both_go_on_from_the_same_point(name: str) -> None:
    layer = make_layer().eval()
    x = make_input(layer)
    cache = start(layer, x)
    twin = COPIES[name](cache)
    assert twin.tokens == cache.tokens
    with torch.no_grad():
        expected, end = layer(x, cache)
        given, same = layer(x, twin)
        assert torch.equal(given, expected)
        assert torch.equal(same.bank, end.bank)
        for used in (cache, twin):
            with pytest.raises(RuntimeError, match="advanced its bank in place"):
                layer(x, used)


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_outlasts_the_backward(name: str) -> None:
    layer = make_layer()
    x = make_input(layer)
    y, cache = layer(x)
    twin = COPIES[name](cache)
    expected = cache.bank.clone()
    assert not twin.valid_until_backward
    y.sum().backward()
    assert torch.equal(twin.bank, expected)
    with pytest.raises(RuntimeError, match="backward of the training call"):
        _ = cache.bank


@pytest.mark.parametrize("name", COPIES)
def test_a_used_up_cache_is_not_copied(name: str) -> None:
    layer = make_layer().eval()
    x = make_input(layer)
    cache = start(layer, x)
    with torch.no_grad():
        layer(x, cache)
    with pytest.raises(RuntimeError, match=r"^\[MemoryCache\] bank: no longer valid"):
        COPIES[name](cache)


def test_there_are_no_subclasses() -> None:
    """Copies would not be of them, nor what a call returns."""
    with pytest.raises(TypeError, match=r"^\[MemoryCache\] Named: expected no subclass"):
        type("Named", (MemoryCache,), {})


def test_a_structure_keeps_what_is_one() -> None:
    cache = MemoryCache(torch.zeros(4, 2), 3)
    for twice in (copy.deepcopy([cache, cache]), pickle.loads(pickle.dumps([cache, cache]))):
        assert twice[0] is twice[1]
        assert twice[0] is not cache


class Threads:
    """Something that a second thread does while the first copies a bank."""

    def __init__(self, patch: pytest.MonkeyPatch, beside: Callable[[], object]) -> None:
        self._copying, self.done = threading.Event(), threading.Event()
        self._beside, self._first = beside, threading.get_ident()
        self._thread = threading.Thread(target=self._run)
        copy_tensor = torch.Tensor.clone

        def slow(tensor: torch.Tensor) -> torch.Tensor:
            if threading.get_ident() == self._first and not self._copying.is_set():
                self._copying.set()
                self.done.wait(1)  # seconds, in which nothing may happen to the bank
            return copy_tensor(tensor)

        patch.setattr(torch.Tensor, "clone", slow)
        self._thread.start()

    def _run(self) -> None:
        assert self._copying.wait(60)
        self._beside()
        self.done.set()

    def join(self) -> None:
        self._thread.join(60)
        assert self.done.is_set()


@pytest.mark.parametrize("name", COPIES)
def test_a_call_beside_waits_for_the_copy(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    layer = make_layer().eval()
    x = make_input(layer)
    cache = start(layer, x)
    before = cache.bank.clone()
    with monkeypatch.context() as patch:
        threads = Threads(patch, torch.no_grad()(lambda: layer(x, cache)))
        twin = COPIES[name](cache)
        threads.join()
    assert torch.equal(twin.bank, before)
    with pytest.raises(RuntimeError, match="advanced its bank in place"):
        COPIES[name](cache)


@pytest.mark.parametrize("name", COPIES)
def test_a_backward_beside_waits_for_the_copy(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    layer = make_layer()
    y, cache = layer(make_input(layer))
    before = cache.bank.clone()
    with monkeypatch.context() as patch:
        threads = Threads(patch, lambda: y.sum().backward())
        twin = COPIES[name](cache)
        threads.join()
    assert torch.equal(twin.bank, before)
    with pytest.raises(RuntimeError, match="backward of the training call"):
        COPIES[name](cache)


def test_a_copy_in_compiled_code() -> None:
    torch._dynamo.reset()
    layer = make_layer().eval()
    x = make_input(layer, tokens=40)  # few tokens go another way where nothing is compiled
    cache = start(layer, x)
    with torch.no_grad():
        expected, _ = layer(x, cache.clone())
        compiled = torch.compile(lambda x: layer(x, cache.clone())[0], backend="eager")
        for _ in range(2):
            assert torch.equal(compiled(x), expected)
