"""Names, shapes and initial values of the parameters."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from layer_cases import OPTIONS, make_input, make_layer
from torch import nn

from sdm_runtime.layer import SparseDeltaMemory, SparseDeltaMemoryArgs


def published_shapes(args: SparseDeltaMemoryArgs) -> dict[str, tuple[int, ...]]:
    """The table of the published layer."""
    dim, heads = args.dim, args.num_heads
    scores = heads * (sum(args.product_key_factor_dims or ()) or 2 * math.isqrt(36))
    linear = {"Wq_read": scores, "Wk_write": scores, "Wv_write": dim, "Wo": dim}
    linear |= {"a_proj": heads, "b_proj": heads}
    linear |= {"Wog": dim} if args.output_gate else {}
    shapes: dict[str, tuple[int, ...]] = {
        f"{name}.weight": (rows, dim) for name, rows in linear.items()
    }
    shapes |= {f"{name}.bias": (rows,) for name, rows in linear.items()}
    shapes |= {"A_log": (heads,), "dt_bias": (heads,)}
    if args.backprop_on_memory:
        shapes["memory"] = (heads * 36, dim // heads)
    if args.normalize_readings:
        shapes |= {f"readings_norm.{name}": (dim // heads,) for name in ("weight", "bias")}
    if args.query_batchnorm:
        names = ("weight", "bias", "running_mean", "running_var")
        for norm in ("query_bn", "key_bn"):
            shapes |= {f"{norm}.{name}": (scores,) for name in names}
            shapes[f"{norm}.num_batches_tracked"] = ()
    return shapes


SETS = [
    dict(zip(("output_gate", "normalize_readings", "query_batchnorm"), flags, strict=True))
    | {"backprop_on_memory": memory, "num_heads": heads}
    for *flags, memory, heads in itertools.product(*[(False, True)] * 4, (1, 3))
] + list(OPTIONS.values())


@pytest.mark.parametrize("options", SETS)
def test_a_published_state_dict_loads(options: dict[str, Any]) -> None:
    layer = make_layer(**options)
    state = {}
    for name, shape in published_shapes(layer.args).items():
        state[name] = torch.rand(shape) if shape else torch.tensor(3)
    layer.load_state_dict(state, strict=True)
    assert all(torch.equal(value, state[name]) for name, value in layer.state_dict().items())
    assert layer.state_dict().keys() == state.keys()


def test_initial_values_have_their_distributions() -> None:
    torch.manual_seed(0)
    args = SparseDeltaMemoryArgs(
        2000, num_heads=2000, slots_per_head=1, num_writes=1, num_reads=1, A_init_range=(0.5, 16)
    )
    layer = SparseDeltaMemory(args)
    rates = layer.A_log.exp()
    assert 0.5 <= rates.min() < 0.6
    assert 15.9 < rates.max() <= 16.0001
    assert abs(rates.mean() - 8.25) < 0.5
    steps = nn.functional.softplus(layer.dt_bias)
    assert 0.000999 < steps.min() < 0.0011
    assert 0.095 < steps.max() < 0.1001
    # log-uniform: the logarithm's mean lies in the middle
    assert abs(steps.log().mean() - math.log(0.01)) < 0.15
    assert not layer.memory.any()


def test_rates_are_clamped() -> None:
    layer = make_layer()
    layer = SparseDeltaMemory(SparseDeltaMemoryArgs(12, A_init_range=(0, 0), slots_per_head=64))
    torch.testing.assert_close(layer.A_log, torch.full((1,), math.log(1e-4)))


@pytest.mark.parametrize("remake", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_equal_and_apart(
    remake: Callable[[SparseDeltaMemory], SparseDeltaMemory],
) -> None:
    layer = make_layer(**OPTIONS["everything"])
    x = make_input(layer)
    twin = remake(layer)
    assert torch.equal(layer(x)[0], twin(x)[0])
    twin.load_state_dict(layer.state_dict())
    with torch.no_grad():
        twin.memory.add_(1)
    assert not torch.equal(layer(x)[0], twin(x)[0])


def test_a_layer_made_on_meta_is_drawn_as_usual() -> None:
    """Built without memory, given memory, drawn: as if built directly."""
    with torch.device("meta"):
        layer = SparseDeltaMemory(make_layer(**OPTIONS["everything"]).args)
    layer.to_empty(device="cpu")
    torch.manual_seed(5)
    layer.reset_parameters()
    assert not layer.memory.any()
    assert torch.equal(layer.readings_norm.weight, torch.ones(6))
    layer(make_input(layer))[0].sum().backward()


def test_reset_draws_what_construction_draws() -> None:
    layer = make_layer(**OPTIONS["everything"])
    torch.manual_seed(3)
    fresh = SparseDeltaMemory(layer.args)
    assert not torch.equal(fresh.Wo.weight, layer.Wo.weight)
    torch.manual_seed(3)
    layer.reset_parameters()
    for name, value in fresh.state_dict().items():
        assert torch.equal(value, layer.state_dict()[name]), name
