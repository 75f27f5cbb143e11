"""Checkpointing, saved-tensor hooks, repeated backward and bad inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from layer_cases import OPTIONS, gradients, make_input, make_layer
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint


@pytest.mark.parametrize("name", ["default", "everything", "zero bank"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_gives_the_same_gradients(name: str, reentrant: bool) -> None:
    layer = make_layer(**OPTIONS[name])
    x = make_input(layer)
    expected = gradients(layer, x)
    given = gradients(layer, x, lambda leaf: checkpoint(layer, leaf, use_reentrant=reentrant)[0])
    assert given.keys() == expected.keys()
    assert all(torch.equal(given[n], expected[n]) for n in given)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_of_a_continued_call(reentrant: bool) -> None:
    layer = make_layer()
    x = make_input(layer)
    with torch.no_grad():
        _, cache = layer(x)
    expected = gradients(layer, x, lambda leaf: layer(leaf, cache)[0])
    given = gradients(
        layer, x, lambda leaf: checkpoint(layer, leaf, cache, use_reentrant=reentrant)[0]
    )
    assert all(torch.equal(given[n], expected[n]) for n in given)


@pytest.mark.parametrize("name", ["default", "everything"])
def test_offloading_gives_the_same_gradients(name: str) -> None:
    layer = make_layer(**OPTIONS[name])
    x = make_input(layer)
    expected = gradients(layer, x)

    def offloaded(leaf: torch.Tensor) -> torch.Tensor:
        with save_on_cpu():
            return layer(leaf)[0]

    packed = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor.shape)
        return tensor.clone()

    def copied(leaf: torch.Tensor) -> torch.Tensor:
        with saved_tensors_hooks(pack, lambda t: t):
            return layer(leaf)[0]

    for run in (offloaded, copied):
        given = gradients(layer, x, run)
        assert all(torch.equal(given[n], expected[n]) for n in given)
    assert len(packed) > 10


def test_a_second_backward_raises() -> None:
    layer = make_layer()
    y = layer(make_input(layer))[0].sum()
    y.backward(retain_graph=True)
    with pytest.raises(RuntimeError):
        y.backward()


def test_two_calls_before_their_backwards() -> None:
    layer = make_layer()
    x = make_input(layer)
    once = gradients(layer, x)
    layer.zero_grad()
    first, second = (layer(x)[0] for _ in range(2))
    torch.manual_seed(11)
    weight = torch.randn(first.shape)
    (first * weight).sum().backward()
    (second * weight).sum().backward()
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(parameter.grad, 2 * once[name], rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("x", "kind", "message"),
    [
        ([1.0], TypeError, "x: expected a tensor, got list"),
        (torch.zeros(3, 12), ValueError, r"x: expected \[B, T, 12\], got \[3, 12\]"),
        (torch.zeros(2, 3, 11), ValueError, r"x: expected \[B, T, 12\], got \[2, 3, 11\]"),
        (torch.zeros(2, 3, 12).bfloat16(), TypeError, "x: expected the weights' dtype torch.floa"),
        (torch.zeros(2, 3, 12).double(), TypeError, "got torch.float64"),
        (torch.zeros(2, 3, 12, device="meta"), ValueError, "x: expected a tensor on cpu"),
        (torch.zeros(1, 1, 12).expand(2**26, 1, 12), ValueError, "of at most 2147483646"),
    ],
)
def test_an_input_of_another_kind_is_refused(x: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make_layer()(x)


def test_other_dtypes_are_refused_before_any_work() -> None:
    layer = make_layer()
    x = make_input(layer)
    with torch.autocast("cpu", torch.float16), pytest.raises(TypeError, match="autocast: expected"):
        layer(x)
    with pytest.raises(TypeError, match=r"one of float32 and bfloat16, got torch\.float64"):
        layer.double()(x.double())
