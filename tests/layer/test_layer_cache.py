"""Continuing a sequence, and who owns the bank."""

from __future__ import annotations

import pytest
import torch
from layer_cases import OPTIONS, error, make_input, make_layer

from sdm_runtime.layer import MemoryCache, SparseDeltaMemory


def run_pieces(
    layer: SparseDeltaMemory, x: torch.Tensor, sizes: list[int]
) -> tuple[torch.Tensor, MemoryCache]:
    outputs, cache = [], None
    for piece in x.split(sizes, dim=1):
        y, cache = layer(piece, cache)
        outputs.append(y)
    return torch.cat(outputs, 1), cache


PIECES = [(name, [21, 1, 1, 17]) for name in OPTIONS]
PIECES += [("everything", [1] * 18 + [22]), ("default", [16, 24])]


@pytest.mark.parametrize(("name", "sizes"), PIECES)
def test_prefill_and_decode_equal_one_pass(name: str, sizes: list[int]) -> None:
    layer = make_layer(**OPTIONS[name]).eval()
    x = make_input(layer, tokens=40)
    with torch.no_grad():
        whole, end = layer(x)
        pieces, cache = run_pieces(layer, x, sizes)
    assert error(pieces, whole.double()) < 2e-6
    assert error(cache.bank, end.bank.double()) < 2e-6
    assert cache.tokens == end.tokens == 40


def test_decoding_copies_no_bank() -> None:
    layer = make_layer().eval()
    x = make_input(layer)
    with torch.no_grad():
        _, first = layer(x)
        address = first.bank.data_ptr()
        _, second = layer(x[:, :1], first)
        assert second.bank.data_ptr() == address
        with pytest.raises(RuntimeError, match="advanced its bank in place"):
            layer(x[:, :1], first)
        with pytest.raises(RuntimeError, match=r"hand a clone\(\) to one of two calls"):
            _ = first.bank


def test_two_ways_from_one_point() -> None:
    layer = make_layer().eval()
    x = make_input(layer)
    with torch.no_grad():
        _, cache = layer(x)
        kept = cache.clone()
        one, _ = layer(x, cache)
        two, _ = layer(x, kept)
    assert torch.equal(one, two)


@pytest.mark.parametrize("name", ["default", "zero bank"])
def test_a_training_call_leaves_the_given_cache(name: str) -> None:
    layer = make_layer(**OPTIONS[name])
    x = make_input(layer)
    with torch.no_grad():
        _, start = layer(x)
    before = start.bank.clone()
    y, _ = layer(x, start)
    assert torch.equal(start.bank, before)
    y.sum().backward()
    assert torch.equal(start.bank, before)
    assert not start.valid_until_backward


def test_a_training_cache_ends_with_the_backward() -> None:
    layer = make_layer()
    x = make_input(layer)
    with torch.no_grad():
        _, expected = layer(x)
    y, cache = layer(x)
    assert cache.valid_until_backward
    assert "valid until backward" in repr(cache)
    assert torch.equal(cache.bank, expected.bank)
    kept = cache.clone()
    y.sum().backward()
    with pytest.raises(RuntimeError, match="backward of the training call"):
        _ = cache.bank
    with pytest.raises(RuntimeError, match="backward of the training call"):
        layer(x, cache)
    assert "invalid" in repr(cache)
    assert torch.equal(kept.bank, expected.bank)
    assert not kept.valid_until_backward


def test_decoding_from_a_training_cache_keeps_its_backward() -> None:
    """A call without a backward must not advance the bank that a backward will restore."""
    layer = make_layer()
    x = make_input(layer)
    layer(x)[0].sum().backward()
    expected = {n: p.grad.clone() for n, p in layer.named_parameters()}
    layer.zero_grad()
    y, cache = layer(x)
    with torch.no_grad():
        layer.eval()(x, cache)
    assert cache.valid_until_backward
    y.sum().backward()
    assert all(torch.equal(p.grad, expected[n]) for n, p in layer.named_parameters())


def test_truncated_backpropagation() -> None:
    """No gradient through the cache: the second call's gradients are those from a fixed bank."""
    layer = make_layer()
    x = make_input(layer)
    _, cache = layer(x)
    second, _ = layer(x, cache)
    second.sum().backward()
    assert layer.memory.grad is None
    assert layer.Wv_write.weight.grad.any()


def test_a_frozen_layer_returns_a_lasting_cache() -> None:
    layer = make_layer().requires_grad_(False)
    _, cache = layer(make_input(layer))
    assert not cache.valid_until_backward


def test_inference_mode_and_back() -> None:
    layer = make_layer().eval()
    x = make_input(layer)
    with torch.inference_mode():
        _, cache = layer(x)
    with torch.no_grad():
        y, cache = layer(x, cache)
        whole, _ = layer(torch.cat([x, x], 1))
    assert error(y, whole[:, x.shape[1] :].double()) < 2e-6


def test_a_cache_of_another_dtype() -> None:
    """A float32 bank goes on as float32 under autocast, and costs no precision."""
    layer = make_layer()
    x = make_input(layer)
    with torch.no_grad():
        _, cache = layer(x)
        with torch.autocast("cpu", torch.bfloat16):
            y, cache = layer(x, cache)
    assert cache.bank.dtype == torch.float32
    assert y.dtype == torch.bfloat16


def test_a_cache_that_does_not_fit_is_refused() -> None:
    layer = make_layer(num_heads=2)
    x = make_input(layer)
    with pytest.raises(TypeError, match=r"\[SparseDeltaMemory\] cache: expected MemoryCache or No"):
        layer(x, torch.zeros(144, 6))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"cache: expected a bank \[144, 6\] on cpu, got \[72, 6"):
        layer(x, MemoryCache(torch.zeros(72, 6), 3))
