"""The switch of the low-latency projections: when it routes, and that it changes nothing here."""

from __future__ import annotations

import copy

import pytest
import torch
from layer_cases import make_input, make_layer
from torch import nn

from sdm_runtime import last_dispatch
from sdm_runtime.layer import projection
from sdm_runtime.layer.projection import project

PROJECTIONS = 7  # Wv_write, Wk_write, Wq_read, a_proj, b_proj, Wog, Wo


@pytest.fixture
def routed(monkeypatch) -> list[tuple[int, ...]]:
    """The weights' shapes of the calls that bf16_linear gets, were its kernel to win everywhere."""
    seen = []

    def bf16_linear(x, weight, bias):
        seen.append(tuple(weight.shape))
        return torch.nn.functional.linear(x, weight, bias)

    monkeypatch.setattr(projection, "kernel_serves", lambda *given: True)
    monkeypatch.setattr(projection, "bf16_linear", bf16_linear)
    return seen


def run(layer, x) -> torch.Tensor:
    with torch.no_grad():
        return layer(x)[0]


@pytest.mark.parametrize("on", [False, True])
def test_the_switch_routes_every_projection(routed, on):
    options = {"output_gate": True, "num_heads": 2}
    layer, plain = (make_layer(**options).bfloat16() for _ in range(2))
    layer.low_latency_projections, plain.low_latency_projections = on, False
    x = make_input(layer, tokens=3).bfloat16()
    y = run(layer, x)
    assert len(routed) == (PROJECTIONS if on else 0)
    assert torch.equal(y, run(plain, x))


def test_on_by_default_nothing_is_routed_on_a_cpu():
    layer, plain = (make_layer().bfloat16() for _ in range(2))
    assert layer.low_latency_projections
    plain.low_latency_projections = False
    x = make_input(layer, tokens=3).bfloat16()
    assert torch.equal(run(layer, x), run(plain, x))
    assert last_dispatch()["op"] != "bf16_linear"


def test_the_switch_is_copied():
    layer = make_layer()
    layer.low_latency_projections = False
    assert not copy.deepcopy(layer).low_latency_projections


def test_a_compiled_graph_holds_the_op():
    linear = nn.Linear(16, 8).bfloat16().requires_grad_(False)
    x = torch.randn(2, 3, 16).bfloat16()
    compiled = torch.compile(project, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(linear, x, low_latency=True), linear(x))
    ran = last_dispatch()
    assert (ran["op"], ran["gemm"]) == ("bf16_linear", "F.linear")


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def hooked(linear: nn.Linear) -> nn.Linear:
    linear.register_forward_hook(lambda module, given, result: -result)
    return linear


def linear(kind: type[nn.Linear] = nn.Linear, dtype: torch.dtype = torch.bfloat16) -> nn.Linear:
    return kind(16, 8).to(dtype).requires_grad_(False)


NOT_ROUTED = {
    "subclass": lambda: (linear(Doubled), torch.randn(1, 2, 16).bfloat16()),
    "hook": lambda: (hooked(linear()), torch.randn(1, 2, 16).bfloat16()),
    "float32": lambda: (linear(dtype=torch.float32), torch.randn(1, 2, 16)),
    "many tokens": lambda: (linear(), torch.randn(3, 43, 16).bfloat16()),
    "no tokens": lambda: (linear(), torch.randn(3, 0, 16).bfloat16()),
    "gradient of x": lambda: (linear(), torch.randn(1, 2, 16).bfloat16().requires_grad_()),
    "gradient of the weight": lambda: (
        linear().requires_grad_(),
        torch.randn(1, 2, 16).bfloat16(),
    ),
}


@pytest.mark.parametrize("name", NOT_ROUTED)
def test_other_projections_are_not_routed(routed, name):
    module, x = NOT_ROUTED[name]()
    assert torch.equal(project(module, x, low_latency=True), module(x))
    assert routed == []
    project(linear(), torch.randn(4, 32, 16).bfloat16(), low_latency=True)  # the control
    assert routed == [(8, 16)]


def test_not_routed_where_autocast_asks_for_another_dtype(routed):
    x = torch.randn(1, 2, 16).bfloat16()
    with torch.no_grad():
        with torch.autocast("cpu", torch.float16):
            project(linear(), x, low_latency=True)
        assert routed == []
        with torch.autocast("cpu", torch.bfloat16):
            project(linear(), x, low_latency=True)
    assert routed == [(8, 16)]


def test_weights_that_autocast_would_cast_are_left_to_it(routed):
    layer = make_layer()
    x = make_input(layer, tokens=2)
    with torch.autocast("cpu", torch.bfloat16):
        y = run(layer, x)
    assert y.dtype == torch.bfloat16
    assert routed == []
