"""Each option's output, final bank and gradients against the float64 token loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from layer_cases import OPTIONS, error, gradients, make_input, make_layer
from layer_model64 import params64, run64
from torch import Tensor

from sdm_runtime import last_dispatch, sdm_write_read
from sdm_runtime.layer import memory_layer


@pytest.mark.parametrize("name", OPTIONS)
def test_output_and_bank_are_those_of_float64(name: str) -> None:
    layer = make_layer(**OPTIONS[name])
    x = make_input(layer)
    with torch.no_grad():
        expected, bank = run64(layer, params64(layer), x)
        y, cache = layer(x)
    assert error(y, expected) < 2e-6
    assert error(cache.bank.view_as(bank), bank) < 2e-6


@pytest.mark.parametrize("name", OPTIONS)
def test_gradients_are_those_of_float64(name: str) -> None:
    layer = make_layer(**OPTIONS[name])
    x = make_input(layer)
    given = gradients(layer, x)

    params, x64 = params64(layer), x.double().requires_grad_()
    y, _ = run64(layer, params, x64)
    torch.manual_seed(11)
    (y * torch.randn(y.shape)).sum().backward()
    expected = {n: p.grad for n, p in params.items()} | {"x": x64.grad}
    assert given.keys() == expected.keys()
    scale = max(float(g.norm()) for g in expected.values())
    for parameter, grad in expected.items():
        # a bias before a batch norm has no gradient but rounding
        floor = 1e-6 * scale
        difference = float((given[parameter].double() - grad).norm())
        assert difference < 1e-5 * float(grad.norm()) + floor, parameter


@pytest.mark.parametrize(
    "changed", ["A_log", "dt_bias", "memory", "Wog.bias", "key_bn.weight", "readings_norm.bias"]
)
def test_the_comparison_sees_each_parameter(changed: str) -> None:
    layer = make_layer(**OPTIONS["everything"])
    x = make_input(layer)
    params = params64(layer)
    with torch.no_grad():
        params[changed] *= 1.01
        assert error(layer(x)[0], run64(layer, params, x)[0]) > 1e-5


def test_batchnorm_statistics_move_in_training_only() -> None:
    layer = make_layer(query_batchnorm=True)
    x = make_input(layer)
    layer(x)
    moved = layer.key_bn.running_mean.clone()
    assert not torch.equal(moved, torch.zeros_like(moved))
    layer.eval()
    y, _ = layer(x)
    assert torch.equal(layer.key_bn.running_mean, moved)
    assert error(y, run64(layer, params64(layer), x)[0]) < 2e-6


def test_repeats_bit_for_bit_and_for_any_thread_count() -> None:
    layer = make_layer(**OPTIONS["heads"])
    x = make_input(layer)
    threads = torch.get_num_threads()
    first = gradients(layer, x)
    try:
        torch.set_num_threads(1)
        second = gradients(layer, x)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(first[name], second[name]) for name in first)
    # the control: another input does differ
    third = gradients(layer, x + 1e-3)
    assert not torch.equal(first["memory"], third["memory"])


def test_no_tokens_leave_the_bank_alone() -> None:
    layer = make_layer()
    x = torch.zeros(2, 0, 12, requires_grad=True)
    y, cache = layer(x)
    assert y.shape == (2, 0, 12)
    assert cache.tokens == 0
    assert torch.equal(cache.bank, layer.memory.detach().repeat(2, 1))
    y, cache = layer(torch.zeros(0, 5, 12))
    assert y.shape == (0, 5, 12)
    assert cache.bank.shape == (0, 12)


def test_options_reach_the_operation() -> None:
    layer = make_layer(chunk_size=32, snapshot_quant="fp8", num_heads=2)
    layer(make_input(layer, batch=3, tokens=70))
    geometry = last_dispatch()["geometry"]
    expected = {"P": 6, "T": 70, "C": 32, "W": 4, "R": 5, "hd": 6, "snapshot": "fp8"}
    assert {name: geometry[name] for name in expected} == expected
    layer = make_layer(chunk_size=None)
    layer(make_input(layer, tokens=130))
    assert last_dispatch()["geometry"]["C"] == 64


def test_values_and_readings_lie_as_the_projections_have_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No copy between heads and sequences."""
    layer = make_layer(num_heads=3)
    lies: dict[str, Tensor] = {}

    def spied(bank: Tensor, *operands: Tensor, **options: Any) -> Tensor:
        lies["v"] = operands[2]
        lies["readings"] = readings = sdm_write_read(bank, *operands, **options)
        readings.register_hook(lambda grad: lies.__setitem__("gradient", grad))
        return readings

    monkeypatch.setattr(memory_layer, "sdm_write_read", spied)
    layer.Wv_write.register_forward_hook(lambda *given: lies.__setitem__("values", given[2]))
    layer.Wo.register_forward_pre_hook(lambda _, given: lies.__setitem__("merged", given[0]))
    layer(make_input(layer))[0].square().sum().backward()
    assert lies["v"].shape == lies["readings"].shape == lies["gradient"].shape == (2, 21, 3, 4)
    assert lies["v"].data_ptr() == lies["values"].data_ptr()
    assert lies["merged"].data_ptr() == lies["readings"].data_ptr()
    assert lies["gradient"].is_contiguous()
