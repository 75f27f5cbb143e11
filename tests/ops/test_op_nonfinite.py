"""NaN, infinities, zeros and huge values come out where the recurrence puts them."""

from __future__ import annotations

import math

import pytest
import torch
from op_cases import DIFFERENTIABLE, Case, call, errors, expected, make_inputs, relative_error, run
from torch.utils._python_dispatch import TorchDispatchMode

from sdm_runtime.ops.forward import chain as forward_chain

CASE = Case(T=45, S=12, W=3, R=3, hd=5, gate_per_write=True)
_ELEMENTS = {
    "memory": (3, 1),
    "k_val": (0, 20, 1),
    "v": (0, 20, 2),
    "beta": (0, 20, 0),
    "g": (0, 20, 0),
    "q_val": (0, 20, 0),
}


def _with(name, value, case=CASE):
    inputs = make_inputs(case)
    inputs[name][_ELEMENTS[name]] = value
    return inputs


def _assert_same_places(given, wanted):
    assert torch.equal(torch.isfinite(given), torch.isfinite(wanted))
    finite = torch.isfinite(wanted)
    assert relative_error(given[finite], wanted[finite]) < 1e-6


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", _ELEMENTS)
def test_one_bad_element_stays_in_its_places(name, value):
    inputs = _with(name, value)
    given, wanted = run(CASE, inputs), expected(CASE, inputs)
    _assert_same_places(given.readings, wanted.readings)
    _assert_same_places(given.advanced, wanted.advanced)
    for leaf in DIFFERENTIABLE:
        # The backward keeps its chunked form, which may spread a NaN but never loses one.
        bad = ~torch.isfinite(wanted.grads[leaf])
        assert not torch.isfinite(given.grads[leaf][bad]).any(), leaf
    before = inputs["memory"]
    assert torch.equal(given.restored.nan_to_num(7), before.nan_to_num(7))


@pytest.mark.parametrize("name", ["v", "memory"])
def test_gradients_of_a_bad_value_stay_apart(name):
    inputs = _with(name, math.nan)
    given, wanted = run(CASE, inputs), expected(CASE, inputs)
    for leaf in DIFFERENTIABLE:
        if leaf != "g":  # sums of differences over the slot: a NaN stays in its slot, in its chunk
            _assert_same_places(given.grads[leaf], wanted.grads[leaf])


def test_padding_takes_no_part():
    # A NaN in the first bank row, which padding entries name.
    case = CASE.but(T=17, S=40)
    inputs = make_inputs(case)
    inputs["memory"][0] = math.nan
    for name in ("k_idx", "q_idx"):
        inputs[name][0] = inputs[name][0].clamp_min(1)
    inputs["k_idx"][0] = torch.rand(17, 39).argsort(-1)[:, :3] + 1
    given = run(case, inputs)
    for x in (given.readings, *given.grads.values()):
        assert torch.isfinite(x).all()


@pytest.mark.parametrize("value", [-math.inf, -1e30, -5000.0, -100.0])
def test_decays_that_underflow(value):
    inputs = _with("g", value)
    inputs["g"][1] = value
    assert max(errors(CASE, inputs).values()) < 6e-7


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_scales_far_from_one(scale):
    inputs = make_inputs(CASE)
    inputs["memory"] *= scale
    inputs["v"] *= scale
    assert max(errors(CASE, inputs).values()) < 6e-7


def test_weights_whose_product_overflows():
    # k * q of one pair is 1e39; what the token reads, k * q * u, is not.
    inputs = make_inputs(CASE)
    for name in ("memory", "v"):
        inputs[name] *= 1e-20
    inputs["k_val"][0, 20] = torch.tensor([1e3, 0, 0])
    inputs["beta"][0, 20] = 1e-8
    inputs["q_val"][0, 22, 1] = 1e36
    inputs["q_idx"][0, 22, 1] = inputs["k_idx"][0, 20, 0]
    given, wanted = run(CASE, inputs), expected(CASE, inputs)
    assert torch.isfinite(wanted.readings).all()
    _assert_same_places(given.readings, wanted.readings)


HUGE = CASE.but(P=1, S=24, gate_per_write=False)
STRONG = 20  # a token of the second chunk


def _strong(beta, weight):
    """A strength as large as floats go, with small weights: every token's delta is finite."""
    inputs = make_inputs(HUGE)
    for name in ("memory", "v"):
        inputs[name] *= 0.2
    inputs["beta"][0, STRONG] = beta
    inputs["k_val"][0, STRONG] *= weight
    return inputs


@pytest.mark.parametrize("beta", [3e38, -3e38])
@pytest.mark.parametrize("weight", [0.0, 1e-38])
@pytest.mark.parametrize("on_device", [False, True])
def test_a_huge_strength_touches_no_token_without_its_slots(beta, weight, on_device, monkeypatch):
    if on_device:  # which has no second look: its kernels' twins must do
        monkeypatch.setattr(forward_chain, "all_finite", lambda *given: True)
    inputs = _strong(beta, weight)
    given, wanted = run(HUGE, inputs), expected(HUGE, inputs)
    _assert_same_places(given.readings, wanted.readings)
    _assert_same_places(given.advanced, wanted.advanced)
    own = set(inputs["k_idx"][0, STRONG].tolist())
    named = zip(*(inputs[name][0].tolist() for name in ("k_idx", "q_idx")), strict=True)
    apart = [not own & {*writes, *reads} for writes, reads in named]
    assert 5 < sum(apart) < 40
    for leaf in ("k_val", "v", "beta", "g", "q_val"):
        grad, exact = given.grads[leaf][0, apart], wanted.grads[leaf][0, apart]
        assert torch.isfinite(grad).all(), leaf
        assert relative_error(grad, exact) < 1e-5, leaf
    for leaf in ("memory", "v", "beta"):
        assert torch.isfinite(given.grads[leaf]).all()


def test_a_delta_that_is_infinite_itself_is_looked_at_again(monkeypatch):
    """The control: what the second look on a CPU is for."""
    inputs = _strong(3e38, 1e-38)
    inputs["v"][0, STRONG] = 100
    bad = ~torch.isfinite(run(HUGE, inputs).readings)
    monkeypatch.setattr(forward_chain, "all_finite", lambda *given: True)
    assert not bad[:STRONG].any()
    assert bad.sum() < (~torch.isfinite(run(HUGE, inputs).readings)).sum()


def _overwritten(weight):
    """Two tokens of one slot: the second's strength overflows with what the first one left."""
    case = HUGE.but(S=60)
    inputs = make_inputs(case)
    inputs["k_idx"][0] = (torch.arange(45)[:, None] + torch.arange(3)) % 50 + 6
    inputs["q_idx"][0] = torch.tensor([10, 11, 12])
    inputs["memory"][0] = 3
    for token, others, value in ((20, [1, 2], 0.5), (21, [3, 4], 0.4)):
        inputs["k_idx"][0, token] = torch.tensor([0, *others])
        inputs["k_val"][0, token] = torch.tensor([weight, 0, 0])
        inputs["v"][0, token] = value * weight
        inputs["g"][0, token] = 0
    inputs["beta"][0, 20] = weight**-2  # slot 0 holds 0.5 then
    inputs["beta"][0, 21] = 3e38
    return case, inputs


@pytest.mark.parametrize("weight", [1.0, 2.0])
def test_products_that_overflow_come_out_of_the_forward_as_the_recurrence_has_them(weight):
    case, inputs = _overwritten(weight)
    residual = inputs["v"][0, 21, 0] - weight * inputs["memory"][0, 0]
    assert not torch.isfinite(3e38 * residual)  # u, were there one
    given, wanted = run(case, inputs), expected(case, inputs)
    assert torch.isfinite(wanted.advanced.float()).all()
    _assert_same_places(given.readings, wanted.readings)
    _assert_same_places(given.advanced, wanted.advanced)
    tokens = {leaf: given.grads[leaf].isfinite()[0].flatten(1).all(1) for leaf in ("v", "g")}
    if weight == 1:
        assert all(finite.all() for finite in tokens.values())
    else:  # beta k k' is infinite: a gap (sdm_runtime/ops/DESIGN.md), and how far it goes
        for finite in tokens.values():
            assert not finite[16:21].any()
            assert finite[21:].all()


@pytest.mark.parametrize("zeros", [["memory"], ["v", "memory"], ["beta"], ["k_val"], ["g"]])
def test_inputs_of_zeros_match_the_recurrence(zeros):
    inputs = make_inputs(CASE)
    for name in zeros:
        inputs[name].zero_()
    assert max(errors(CASE, inputs).values()) < 6e-7


class _Operations(TorchDispatchMode):
    """Notes the names of torch's operations; of index_put_ also whether it adds."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        adds = func is torch.ops.aten.index_put_.default and args[3:] == (True,)
        self.names.add(f"{func.__name__}, accumulating" if adds else func.__name__)
        return func(*args, **(kwargs or {}))

    def in_any_order(self):
        adding = ("scatter_add", "scatter_reduce", "index_add", "index_reduce", "accumulating")
        return [name for name in self.names if any(word in name for word in adding)]


def test_a_slot_named_twice_is_added_to_in_a_fixed_order():
    case = CASE.but(repeats=True, S=6)  # where a token names slots twice, some devices need one
    inputs = _with("v", math.nan, case)
    with _Operations() as ran:
        readings = call(case, {name: x.clone() for name, x in inputs.items()})
    _assert_same_places(readings, expected(case, inputs).readings)
    assert "index_put_.default" in ran.names  # the token by token form was there
    assert ran.in_any_order() == []
    with _Operations() as control:
        torch.zeros(2).scatter_add_(0, torch.tensor([0, 0]), torch.ones(2))
        torch.zeros(2).index_put_((torch.tensor([0, 0]),), torch.ones(2), accumulate=True)
    assert len(control.in_any_order()) == 2
