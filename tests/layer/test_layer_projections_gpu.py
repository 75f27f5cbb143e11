"""A decode call of the layer on a GPU where bf16_linear's rule takes its square projections."""

from __future__ import annotations

import pytest
import torch
from layer_cases import error, make_input, make_layer

from sdm_runtime import last_dispatch
from sdm_runtime.linear import kernel_serves


def test_the_kernel_serves_a_decode_call() -> None:
    layer = make_layer(dim=2048, slots_per_head=64).cuda().bfloat16()
    x = make_input(layer, batch=2, tokens=4).cuda().bfloat16()
    with torch.no_grad():
        if not kernel_serves(x, layer.Wo.weight, layer.Wo.bias):
            pytest.skip("the rule leaves this device or shape to the library")
        y, cache = layer(x)
        assert last_dispatch()["gemm"] == "bf16_linear"  # Wo comes last
        layer.low_latency_projections = False
        expected, _ = layer(x)
        assert last_dispatch()["op"] != "bf16_linear"
    assert error(y.cpu(), expected.cpu().double()) < 2e-2
    assert cache.tokens == 4


def test_training_is_not_routed() -> None:
    layer = make_layer(dim=2048, slots_per_head=64).cuda().bfloat16()
    layer(make_input(layer, batch=2, tokens=4).cuda().bfloat16())
    assert last_dispatch()["op"] != "bf16_linear"
