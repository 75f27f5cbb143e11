"""Every activation's weights and gradients."""

from __future__ import annotations

import pytest
import torch
from layer_cases import error, make_input, make_layer
from layer_model64 import activation, params64, run64
from torch.nn.modules import activation as torch_activations

from sdm_runtime.layer.activations import SlotWeights, check_activation_name

REFUSED = {"GLU", "MultiheadAttention", "Softmax2d", "Threshold"}
NAMES = ["l2_normalize", "Identity", *sorted(set(torch_activations.__all__) - REFUSED)]


@pytest.mark.parametrize("name", NAMES)
def test_slot_weights_are_the_activation_scaled(name: str) -> None:
    torch.manual_seed(0)
    scores = torch.randn(3, 5, 7)
    weights = SlotWeights(name, 1.5).eval()
    with torch.no_grad():
        expected = activation(name)
        if isinstance(expected, torch.nn.Module):
            expected = expected.double().eval()
        assert error(weights(scores), expected(1.5 * scores.double())) < 1e-6


@pytest.mark.parametrize("name", REFUSED)
def test_not_a_function_of_the_scores(name: str) -> None:
    assert check_activation_name(name) is not None


def test_a_learned_activation_in_a_bfloat16_layer() -> None:
    layer = make_layer(read_act="PReLU").bfloat16()
    layer(make_input(layer).bfloat16())[0].sum().backward()
    assert layer.read_act.act.weight.grad.dtype == torch.bfloat16


def test_zero_scores_normalize_to_zero() -> None:
    scores = torch.zeros(2, 4, requires_grad=True)
    weights = SlotWeights("l2_normalize", 1.0)(scores)
    weights.sum().backward()
    assert not weights.any()
    assert scores.grad.isfinite().all()


def test_a_layer_with_a_plain_activation() -> None:
    layer = make_layer(read_act="Identity", write_act="ReLU")
    x = make_input(layer)
    assert error(layer(x)[0], run64(layer, params64(layer), x)[0].detach()) < 2e-6
