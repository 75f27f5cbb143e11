"""The whole chain of a decoding step without a GPU: stand-ins run the plans of bf16_linear.

What the modules of a layer are when it is called counts, not what its options made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest
import torch
from layer_cases import error, make_input, make_layer
from torch import Tensor, nn
from torch.nn.functional import linear

from sdm_runtime import StepChain
from sdm_runtime.layer import SparseDeltaMemory, decoding, decoding_plans, prepared


def group_stand_in(
    x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor | None], ys: Sequence[Tensor],
    *, pdl: bool,
) -> Callable[[], None]:  # fmt: skip
    assert x.data_ptr() % 16 == 0  # what the plan asks for
    assert x.is_contiguous()

    def run() -> None:
        for weight, bias, y in zip(weights, biases, ys, strict=True):
            y.copy_(linear(x, weight, bias))

    return run


def linear_stand_in(
    x: Tensor, weight: Tensor, y: Tensor, bias: Tensor | None, *, pdl: bool
) -> Callable[[], None]:
    return group_stand_in(x, [weight], [bias], [y], pdl=pdl)


class Chain:
    """Plans and stand-ins in order."""

    def __init__(self, plans: Sequence[Any], done: Callable[[], None]) -> None:
        self.plans, self.done, self.launches = plans, done, len(plans)

    def run(self) -> None:
        for plan in self.plans:
            plan() if callable(plan) else StepChain([plan], 1).run()
        self.done()


@pytest.fixture
def chains(monkeypatch: pytest.MonkeyPatch) -> list[decoding_plans.Plans]:
    """The chains that ran."""
    ran: list[decoding_plans.Plans] = []

    def chain(
        call: Any, plans: decoding_plans.Plans, operands: Mapping[str, Tensor], arenas: Any
    ) -> Chain:
        named = dict(operands)
        for arena in arenas:
            arena.memory.fill_(-1)  # NaN in bfloat16 and float32: what nobody writes shows
            named |= arena.operands()
        return Chain(plans(call.layer.args, call.forms, named, False), lambda: ran.append(plans))

    monkeypatch.setattr(decoding, "kernel_takes", lambda x: x.dtype == torch.bfloat16)
    monkeypatch.setattr(decoding._Call, "_chain", chain)
    monkeypatch.setattr(decoding, "HeldChain", lambda *given: None)
    monkeypatch.setattr(prepared.PreparedCalls, "keep", lambda *given: None)
    monkeypatch.setattr(decoding_plans, "plan_bf16_linear_group", group_stand_in)
    monkeypatch.setattr(decoding_plans, "plan_bf16_linear", linear_stand_in)
    return ran


def random_norm(columns: int) -> nn.LayerNorm:
    norm = nn.LayerNorm(columns)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


def without(name: str) -> Callable[[SparseDeltaMemory], None]:
    return lambda layer: setattr(layer, name, None)


# A layer's options, and what becomes of its modules.
CHANGED: dict[str, tuple[dict[str, Any], Callable[[SparseDeltaMemory], None]]] = {
    "as made": ({"output_gate": True, "normalize_readings": True}, lambda layer: None),
    "no gate": ({"output_gate": True}, without("Wog")),
    "a gate": ({}, lambda layer: setattr(layer, "Wog", nn.Linear(16, 16))),
    "no norm": ({"normalize_readings": True}, without("readings_norm")),
    "a norm": ({}, lambda layer: setattr(layer, "readings_norm", random_norm(8))),
    "no query norm": ({"query_batchnorm": True}, without("query_bn")),
    "no key norm": ({"query_batchnorm": True}, without("key_bn")),
}


@pytest.mark.parametrize("projected", [True, False])
@pytest.mark.parametrize("name", CHANGED)
def test_the_modules_count_and_not_the_options(
    name: str, projected: bool, chains: list[decoding_plans.Plans], monkeypatch: pytest.MonkeyPatch
) -> None:
    options, change = CHANGED[name]
    layer = make_layer(16, num_heads=2, **options)
    for norm in (layer.query_bn, layer.key_bn):
        if norm is not None:
            nn.init.normal_(norm.weight)
    change(layer)
    layer.bfloat16().eval()
    if not projected:
        layer.Wq_read.register_forward_hook(lambda *_: None)
    x = make_input(layer, tokens=3).bfloat16()
    with torch.no_grad():
        y, cache = layer(x)
        later, _ = layer(x, cache)
        assert chains == [decoding_plans.whole_plans] * 2
        monkeypatch.setattr(decoding, "is_decoding", lambda *_: False)
        expected, cache = layer(x)
        and_later, _ = layer(x, cache)
    assert len(chains) == 2
    assert error(y, expected.double()) < 2e-2
    assert error(later, and_later.double()) < 2e-2


def test_x_that_starts_off_a_boundary(
    chains: list[decoding_plans.Plans], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = make_layer(16).bfloat16().eval()
    x = torch.randn(1, 1, 24).bfloat16()[..., 3:19]
    assert x.is_contiguous()
    with torch.no_grad():
        y, _ = layer(x)
        assert chains == [decoding_plans.whole_plans]
        assert torch.equal(y, layer(x.clone())[0])


class Spread(nn.Module):
    """An output gate with one value for all columns."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x)


@pytest.mark.parametrize(
    ("name", "module"), [("Wo", nn.Linear(16, 24)), ("Wog", nn.Linear(16, 1)), ("Wog", Spread())]
)
def test_modules_of_other_sizes_are_called(
    name: str, module: nn.Module, chains: list[decoding_plans.Plans],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    layer = make_layer(16, num_heads=2, output_gate=True)
    setattr(layer, name, module)
    layer.bfloat16().eval()
    x = make_input(layer, tokens=3).bfloat16()
    with torch.no_grad():
        y, _ = layer(x)
        assert decoding_plans.step_plans in chains
        monkeypatch.setattr(decoding, "is_decoding", lambda *_: False)
        expected, _ = layer(x)
    assert y.shape == expected.shape
    assert error(y, expected.double()) < 2e-2


def with_bias(norm: nn.LayerNorm, bias: Tensor) -> nn.LayerNorm:
    norm.bias = nn.Parameter(bias)
    return norm


@pytest.mark.parametrize(
    "norm",
    [
        nn.LayerNorm(8).half(),
        with_bias(nn.LayerNorm(8).bfloat16(), torch.randn(8).bfloat16().repeat_interleave(2)[::2]),
        with_bias(nn.LayerNorm(8).bfloat16(), torch.randn(1).bfloat16().expand(8)),
    ],
)
def test_norms_that_no_plan_takes_are_called(
    norm: nn.LayerNorm, chains: list[decoding_plans.Plans]
) -> None:
    layer = make_layer(16, num_heads=2, normalize_readings=True).bfloat16().eval()
    layer.readings_norm = norm
    with torch.no_grad():
        with suppress(RuntimeError):  # torch's norm does not take all of them either
            layer(make_input(layer, tokens=3).bfloat16())
        assert decoding_plans.step_plans in chains
        chains.clear()
        layer.readings_norm = nn.LayerNorm(8).bfloat16()  # the control
        layer(make_input(layer, tokens=3).bfloat16())
        assert chains == [decoding_plans.whole_plans]
