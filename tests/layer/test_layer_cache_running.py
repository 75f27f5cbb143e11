"""A cache that is read while the call that it was handed to runs."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from layer_cases import make_input, make_layer

from sdm_runtime import MemoryCache, SparseDeltaMemory

RUNS = r"^\[MemoryCache\] bank: not here to use, the call that has it still runs"
HAS = r"^\[MemoryCache\] bank: no longer valid, a compiled call has it, or had it when it raised"
READS: dict[str, Callable[[MemoryCache], Any]] = {
    "bank": lambda cache: cache.bank,
    "clone": MemoryCache.clone,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
}
TOKENS = [1, 20]  # few rows, which are kept, and many
WAYS = {
    "eager": lambda layer: layer,
    "forward": lambda layer: layer.forward,
    "compiled": lambda layer: torch.compile(layer, backend="eager"),
    "inside": lambda layer: torch.compile(lambda *given: layer(*given), backend="eager"),
}

CASES = [(read, tokens, "eager") for read in READS for tokens in TOKENS]
CASES += [("clone", 1, way) for way in WAYS if way != "eager"]


def refusal(way: str) -> str:
    """A graph looks at no frames: whether its call still runs, its cache does not tell."""
    return HAS if way in ("compiled", "inside") else RUNS


def started() -> tuple[SparseDeltaMemory, torch.Tensor, MemoryCache]:
    torch._dynamo.reset()
    layer = make_layer().eval()
    x = make_input(layer)
    with torch.no_grad():
        return layer, x, layer(x)[1]


def looking(layer: SparseDeltaMemory, look: Callable[[], object]) -> list[str]:
    """What `look`, which `Wo` calls at its end, is refused with: filled by the calls to come."""
    seen: list[str] = []

    @torch.compiler.disable
    def hook(*_: object) -> None:
        try:
            look()
        except RuntimeError as error:
            seen.append(str(error))

    layer.Wo.register_forward_hook(hook)
    return seen


@pytest.mark.parametrize(("read", "tokens", "way"), CASES)
def test_a_hook_is_refused_and_changes_nothing(read: str, tokens: int, way: str) -> None:
    layer, x, cache = started()
    x = x[:, :tokens]
    with torch.no_grad():
        expected, end = layer(x, cache.clone())
        seen = looking(layer, lambda: READS[read](cache))
        given, new = WAYS[way](layer)(x, cache)
    assert len(seen) == 1
    with pytest.raises(RuntimeError, match=refusal(way)):
        raise RuntimeError(seen[0])
    assert torch.equal(given, expected)
    assert torch.equal(new.bank, end.bank)
    with pytest.raises(RuntimeError, match="advanced its bank in place"):
        _ = cache.bank


@pytest.mark.parametrize(("way", "train"), [("eager", True), *((way, False) for way in WAYS)])
def test_a_call_within_the_call_is_refused(way: str, train: bool) -> None:
    """By another layer, whose own call is on the stack as well."""
    layer, x, cache = started()
    other = make_layer().train(train)
    x = x[:, :1]
    with torch.no_grad():
        expected, end = layer(x, cache.clone())
        seen = looking(layer, lambda: other(x, cache))
        given, new = WAYS[way](layer)(x, cache)
    assert len(seen) == 1
    with pytest.raises(RuntimeError, match=refusal(way)):
        raise RuntimeError(seen[0])
    assert torch.equal(given, expected)
    assert torch.equal(new.bank, end.bank)


@pytest.mark.parametrize("way", WAYS)
def test_an_error_in_the_hook_ends_the_call(way: str) -> None:
    """The refusal itself may end the call: then the cache is as it was, or a graph's is lost."""
    layer, x, cache = started()
    x = x[:, :1]
    before = cache.bank.clone()
    reached = []

    @torch.compiler.disable
    def hook(*_: object) -> None:
        reached.append(True)
        cache.clone()

    with torch.no_grad():
        expected, _ = layer(x, MemoryCache(before.clone(), cache.tokens))
        handle = layer.Wo.register_forward_hook(hook)
        for _ in range(2):
            with pytest.raises(RuntimeError, match=refusal(way)):
                WAYS[way](layer)(x, cache)
        handle.remove()
        if refusal(way) is HAS:
            assert len(reached) == 1
            with pytest.raises(RuntimeError, match=HAS):
                _ = cache.bank
            return
        assert len(reached) == 2
        assert torch.equal(cache.bank, before)
        assert torch.equal(WAYS[way](layer)(x, cache)[0], expected)


def test_other_caches_are_read_within_a_call() -> None:
    """The control: one that no call has, and one that a call has copied."""
    layer, x, cache = started()
    spare = cache.clone()
    seen = looking(layer, lambda: spare.bank)
    with torch.no_grad():
        layer(x, cache)
    cache = spare.clone()
    seen += looking(layer, lambda: cache.bank)
    layer(x, cache)
    assert seen == []


def test_a_call_that_is_not_seen_is_not_undone() -> None:
    """A bank that was taken by what is no call of the layer: whether that runs cannot be told."""
    _, _, cache = started()
    rows = torch.zeros(1, dtype=torch.int64)
    with torch.no_grad():
        cache.take_bank(rows, copy=False).zero_()
    with pytest.raises(RuntimeError, match=RUNS):
        _ = cache.bank
    cache.returned()
    with pytest.raises(RuntimeError, match="advanced its bank in place"):
        _ = cache.bank
