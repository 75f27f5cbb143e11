"""torch.func and forward mode: refused by name, before a cache is taken or a bank advanced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from layer_cases import make_input, make_layer
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import functional_call

from sdm_runtime import SparseDeltaMemory
from sdm_runtime.layer.candidates import candidate_tables
from sdm_runtime.layer.selection import select_slots

Call = Callable[[Tensor], Tensor]

TRANSFORMS: dict[str, Callable[[Call, Tensor], Any]] = {
    "vmap": lambda call, x: torch.func.vmap(call)(x.unsqueeze(0)),
    "grad": lambda call, x: torch.func.grad(lambda y: call(y).sum())(x),
    "jvp": lambda call, x: torch.func.jvp(call, (x,), (x,)),
    "jacrev": lambda call, x: torch.func.jacrev(call)(x),
}


@pytest.fixture
def layer() -> SparseDeltaMemory:
    return make_layer(num_heads=2)


@pytest.mark.parametrize("tokens", [3, 21])
@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_are_refused_by_name(
    layer: SparseDeltaMemory, name: str, train: bool, tokens: int
) -> None:
    x = make_input(layer.train(train), tokens=tokens)
    with torch.set_grad_enabled(train):
        expected, cache = layer(x)
        refusal = r"^\[(token_gates|slot_select)\] \w+: expected a tensor outside of torch.func"
        with pytest.raises(TypeError, match=refusal):
            TRANSFORMS[name](lambda y: layer(y, cache)[0], x)
        assert torch.equal(layer(x)[0], expected)
        cache.clone()  # nobody has it


def test_parameters_that_are_transformed_are_refused(layer: SparseDeltaMemory) -> None:
    x = make_input(layer)

    def loss(A_log: Tensor) -> Tensor:
        made: Tensor = functional_call(layer, {"A_log": A_log}, (x,))[0].sum()
        return made

    with pytest.raises(TypeError, match=r"^\[token_gates\] \w+: expected a tensor outside"):
        torch.func.grad(loss)(layer.A_log.detach())


@pytest.mark.parametrize("name", ["x", "dt_bias"])
@pytest.mark.parametrize("grad", [False, True])
def test_tangents_are_refused(layer: SparseDeltaMemory, name: str, grad: bool) -> None:
    x = make_input(layer)
    with torch.set_grad_enabled(grad), forward_ad.dual_level():
        layer(x)  # the control: in a level, without a tangent
        own = layer.dt_bias.detach() if name == "dt_bias" else x
        dual = forward_ad.make_dual(own, torch.ones_like(own))
        with pytest.raises(ValueError, match=r"^\[token_gates\] \w+: expected no tangent"):
            functional_call(layer, {"dt_bias": dual}, (x,)) if name == "dt_bias" else layer(dual)


@pytest.mark.parametrize("side", [0, 1])
def test_scores_are_refused_by_name(side: int) -> None:
    tables, scores = candidate_tables((4, 4), 2), [torch.randn(1, 2, 8) for _ in range(2)]
    name = ("key_scores", "query_scores")[side]

    def select(own: Tensor) -> Tensor:
        given = [own if i == side else x for i, x in enumerate(scores)]
        return select_slots(given[0], given[1], (4, 4), 1, tables, tables).k_val

    select(scores[side])
    with pytest.raises(TypeError, match=rf"^\[slot_select\] {name}: expected a tensor outside"):
        torch.func.vmap(select)(scores[side].unsqueeze(0))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(scores[side], scores[side])
        with pytest.raises(ValueError, match=rf"^\[slot_select\] {name}: expected no tangent"):
            select(dual)
