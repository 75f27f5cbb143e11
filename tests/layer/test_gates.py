"""The gates and their gradients against the definition in float64."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from gate_cases import (
    BF16,
    DTYPES,
    F32,
    SIZES,
    Sizes,
    definition,
    gate_inputs,
    run_with_gradients,
    upstream,
)
from torch import Tensor

from sdm_runtime.layer.gates import _gates, _gates_grad, token_gates

NAMES = ("beta", "g", "d_a", "d_b", "d_A_log", "d_dt_bias")


def units_off(given: Tensor, exact: Tensor) -> float:
    """The largest distance relative to the larger of the value and a thousandth of the largest."""
    exact = exact.double()
    floor = 1e-3 * float(exact.abs().max())
    return float(((given.double() - exact).abs() / exact.abs().clamp(min=floor)).max())


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(("projected", "own"), DTYPES)
def test_values_and_gradients(sizes: Sizes, projected: torch.dtype, own: torch.dtype) -> None:
    inputs = gate_inputs(sizes, projected, own)
    given = run_with_gradients(token_gates, inputs, sizes)
    exact = run_with_gradients(definition, tuple(x.double() for x in inputs), sizes)
    dtypes = (F32, F32, projected, projected, own, own)
    for name, x, y, dtype in zip(NAMES, given, exact, dtypes, strict=True):
        assert x.dtype == dtype, name
        assert x.shape == y.shape, name
        assert units_off(x, y) < (1e-4 if dtype == F32 else 5e-3), name
        # The control: another value is found.
        assert units_off(x * 1.05, y) > 5e-3, name


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_small_probabilities_keep_their_digits(sizes: Sizes) -> None:
    """Where sigmoid(b) rounds to 1, its slope is not 0."""
    a, b, a_log, dt_bias = gate_inputs(sizes)
    inputs = (a, b.abs() + 20, a_log, dt_bias)
    small = torch.exp(-inputs[1].double())
    d_beta = upstream(sizes)[0].view(sizes.batches, sizes.heads, sizes.tokens).transpose(1, 2)
    exact = d_beta * small / (1 + small) ** 2
    for run, bound in ((token_gates, True), (definition, False)):
        given = run_with_gradients(run, inputs, sizes)[3]
        assert (float(((given - exact).abs() / exact.abs()).max()) < 1e-5) is bound


@pytest.mark.parametrize("sizes", [Sizes(2, 37, 4), Sizes(1, 9, 1)])
def test_tokens_may_lie_apart(sizes: Sizes) -> None:
    apart = gate_inputs(sizes, gap=5)
    dense = tuple(x.contiguous() for x in apart)
    assert not apart[0].is_contiguous()
    for x, y in zip(
        *(run_with_gradients(token_gates, i, sizes) for i in (apart, dense)), strict=True
    ):
        assert torch.equal(x, y)


def test_other_layouts_and_dtypes_are_brought_into_form() -> None:
    sizes = Sizes(2, 6, 4)
    a, b, a_log, dt_bias = gate_inputs(sizes)
    turned = a.transpose(1, 2).contiguous().transpose(1, 2)
    assert turned.stride(-1) != 1
    doubled = (turned, b.double(), a_log.double(), dt_bias.half().double())
    given = run_with_gradients(token_gates, doubled, sizes)
    wanted = run_with_gradients(token_gates, (a, b, a_log, dt_bias.half().float()), sizes)
    for x, y in zip(given, wanted, strict=True):
        assert torch.equal(x.float(), y)
    assert given[3].dtype == torch.float64
    one_for_all = a[:1, :1].expand(2, 6, 4)
    assert torch.equal(
        token_gates(one_for_all, b, a_log, dt_bias)[1],
        token_gates(one_for_all.contiguous(), b, a_log, dt_bias)[1],
    )


def ordered_sum(terms: Tensor) -> Tensor:
    """Of [n] in the documented order, but for the fused rounding of a product and its addition."""
    lanes = torch.zeros(8192)
    for part in terms.split(8192):
        lanes[: part.numel()] += part
    while lanes.numel() > 1:
        lanes = lanes[0::2] + lanes[1::2]
    return lanes[0]


@pytest.mark.parametrize("sizes", [Sizes(1, 5, 2), Sizes(2, 3000, 2), Sizes(1, 20000, 5)])
def test_the_order_of_the_sums(sizes: Sizes) -> None:
    a, b, a_log, dt_bias = gate_inputs(sizes)
    # Slopes of 1: the sums are those of d_g alone.
    a, a_log = torch.full_like(a, 100.0), torch.zeros_like(a_log)
    inputs = (a, b, a_log, torch.zeros_like(dt_bias))
    found = run_with_gradients(token_gates, inputs, sizes)[5]
    d_g = upstream(sizes)[1].view(sizes.batches, sizes.heads, sizes.tokens)
    by_head = d_g.transpose(0, 1).flatten(1)
    assert torch.equal(found, torch.stack([-ordered_sum(terms) for terms in by_head]))
    if sizes.tokens > 1000:  # the control
        other = torch.stack([-ordered_sum(terms.flip(0)) for terms in by_head])
        assert not torch.equal(found, other)


@pytest.mark.parametrize("sizes", [Sizes(0, 3, 2), Sizes(2, 0, 2)])
def test_no_tokens(sizes: Sizes) -> None:
    given = run_with_gradients(token_gates, gate_inputs(sizes), sizes)
    assert [x.shape for x in given[:2]] == [(sizes.batches * 2, sizes.tokens, 1)] * 2
    assert torch.equal(given[4], torch.zeros(2))
    assert torch.equal(given[5], torch.zeros(2))


def test_only_what_is_needed_has_a_gradient() -> None:
    a, b, a_log, dt_bias = gate_inputs(Sizes(2, 5, 3))
    beta, g = token_gates(a, b, a_log.requires_grad_(), dt_bias)
    assert beta.requires_grad
    (g.sum() + beta.sum()).backward()
    assert a_log.grad is not None
    with torch.no_grad():
        assert not token_gates(a, b, a_log, dt_bias)[0].requires_grad
    assert not token_gates(a, b, a_log.detach(), dt_bias)[0].requires_grad


def test_no_second_derivative() -> None:
    sizes = Sizes(1, 4, 2)
    leaves = [x.requires_grad_() for x in gate_inputs(sizes)]
    outs = token_gates(*leaves)
    ones = [torch.ones_like(x).requires_grad_() for x in outs]
    grads = torch.autograd.grad(outs, leaves, ones, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grads[0].sum().backward()


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_autocast_changes_nothing(dtype: torch.dtype) -> None:
    sizes = Sizes(2, 5, 3)
    inputs = gate_inputs(sizes, dtype)
    wanted = run_with_gradients(token_gates, inputs, sizes)
    with torch.autocast("cpu", BF16):
        given = run_with_gradients(token_gates, inputs, sizes)
    for x, y in zip(given, wanted, strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize("projected", [F32, BF16])
def test_the_operators_pass_torchs_opcheck(projected: torch.dtype) -> None:
    sizes = Sizes(2, 5, 3)
    inputs = [x.requires_grad_() for x in gate_inputs(sizes, projected)]
    torch.library.opcheck(_gates, tuple(inputs))
    torch.library.opcheck(_gates_grad, (*upstream(sizes), *(x.detach() for x in inputs)))


def test_one_graph_with_the_same_bits() -> None:
    torch._dynamo.reset()
    sizes = Sizes(2, 5, 3)
    inputs = gate_inputs(sizes, gap=2)
    compiled = torch.compile(token_gates, fullgraph=True, backend="aot_eager")
    given, wanted = (run_with_gradients(f, inputs, sizes) for f in (compiled, token_gates))
    for x, y in zip(given, wanted, strict=True):
        assert torch.equal(x, y)


def cut(x: Tensor) -> Tensor:
    return x[..., :-1]


BAD: list[tuple[str, Any, type[Exception], str]] = [
    ("a", lambda x: x[0], ValueError, "a: expected float32 or bfloat16 [B, T, H], got"),
    ("b", cut, ValueError, "b: expected float32 or bfloat16 [2, 5, 3], got"),
    ("b", lambda x: x[:, 1:], ValueError, "b: expected float32 or bfloat16 [2, 5, 3], got"),
    ("A_log", cut, ValueError, "A_log: expected float32 [3], got float32 [2]"),
    ("dt_bias", cut, ValueError, "dt_bias: expected float32 [3], got float32 [2]"),
    ("dt_bias", lambda x: x.to("meta"), ValueError, "dt_bias: expected a tensor on cpu or cuda"),
    ("b", lambda x: x.to_sparse(), TypeError, "gate_b: expected a dense tensor, got sparse_coo"),
]


@pytest.mark.parametrize(("name", "change", "error", "message"), BAD)
def test_a_wrong_argument_is_named(
    name: str, change: Any, error: type[Exception], message: str
) -> None:
    names = ("a", "b", "A_log", "dt_bias")
    inputs = dict(zip(names, gate_inputs(Sizes(2, 5, 3)), strict=True))
    token_gates(**inputs)
    with pytest.raises(error, match=re.escape(message)):
        token_gates(**inputs | {name: change(inputs[name])})
