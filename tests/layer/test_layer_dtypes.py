"""bfloat16 layers and autocast."""

from __future__ import annotations

import pytest
import torch
from layer_cases import OPTIONS, error, gradients, make_input, make_layer
from layer_model64 import params64, run64

# bfloat16 keeps 8 bits; projections, bank and readings each round
TOLERANCE = 3e-2


@pytest.mark.parametrize("name", OPTIONS)
def test_autocast_stays_near_float64(name: str) -> None:
    layer = make_layer(**OPTIONS[name])
    x = make_input(layer)
    with torch.autocast("cpu", torch.bfloat16):
        expected, _ = run64(layer, params64(layer), x)
        y, cache = layer(x)
    assert y.dtype == torch.bfloat16
    assert cache.bank.dtype == torch.bfloat16
    assert error(y, expected) < TOLERANCE


def test_autocast_gradients_are_float32() -> None:
    layer = make_layer(**OPTIONS["everything"])
    x = make_input(layer)
    expected = gradients(layer, x)

    def run(leaf: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return layer(leaf)[0]

    given = gradients(layer, x, run)
    assert all(grad.dtype == torch.float32 for grad in given.values())
    assert given.keys() == expected.keys()
    assert error(given["Wo.bias"], expected["Wo.bias"].double()) < TOLERANCE


def test_the_batch_is_summed_in_float32() -> None:
    """The learned bank's gradient: 64 equal parts add up exactly under autocast."""
    layer = make_layer()
    x = make_input(layer, batch=1)

    def run(leaf: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return layer(leaf)[0]

    one = gradients(layer, x, lambda leaf: run(leaf).sum())["memory"]
    many = gradients(layer, x, lambda leaf: run(leaf.expand(65, -1, -1)).sum())["memory"]
    assert torch.equal(many, 65 * one)
    assert not torch.equal(many, many.bfloat16().float())


@pytest.mark.parametrize("name", OPTIONS)
def test_a_bfloat16_layer_stays_near_float64(name: str) -> None:
    layer = make_layer(**OPTIONS[name]).bfloat16()
    x = make_input(layer).bfloat16()
    expected, bank = run64(layer, params64(layer), x)
    y, cache = layer(x)
    assert y.dtype == cache.bank.dtype == torch.bfloat16
    assert error(y, expected) < TOLERANCE
    assert error(cache.bank.view_as(bank), bank) < TOLERANCE
    y.sum().backward()
    assert all(p.grad.dtype == torch.bfloat16 for p in layer.parameters())


@pytest.mark.parametrize("quant", ["bf16", "fp8", "int4"])
def test_quantized_snapshots_touch_gradients_alone(quant: str) -> None:
    plain, narrow = make_layer(), make_layer(snapshot_quant=quant)
    x = make_input(plain)
    assert torch.equal(plain(x)[0], narrow(x)[0])
    expected, given = gradients(plain, x), gradients(narrow, x)
    assert not torch.equal(given["Wk_write.weight"], expected["Wk_write.weight"])
    assert all(error(given[n], expected[n].double()) < 0.1 for n in given)


def test_a_float32_grad_bank_is_closer() -> None:
    """The gradient of a bfloat16 bank, accumulated in float32, against a float32 bank's."""
    narrow, wide = make_layer().bfloat16(), make_layer(grad_bank_fp32=True).bfloat16()
    exact = make_layer().bfloat16().float()
    x = make_input(narrow, tokens=200).bfloat16()
    expected = gradients(exact, x.float())["memory"].double()
    errors = [error(gradients(layer, x)["memory"], expected) for layer in (narrow, wide)]
    assert errors[1] < errors[0]
