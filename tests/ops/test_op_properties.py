"""Drawn shapes and data against the float64 recurrence."""

from __future__ import annotations

import math

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from op_cases import DIFFERENTIABLE, Case, expected, make_inputs, run

_SETTINGS = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


@st.composite
def cases(draw):
    slots = draw(st.one_of(st.just(1), st.integers(1, 24)))
    repeats = draw(st.booleans())
    # W = S writes every slot, every token.
    writes = draw(st.one_of(st.just(slots), st.integers(1, slots + 4 if repeats else slots)))
    return Case(
        P=draw(st.integers(1, 3)),
        T=draw(st.integers(1, 70)),
        S=slots,
        hd=draw(st.integers(1, 9)),
        W=writes,
        R=draw(st.integers(1, 8)),
        C=draw(st.integers(16, 40)),
        dtype=draw(st.sampled_from([torch.float32, torch.bfloat16])),
        gate_per_write=draw(st.booleans()),
        repeats=repeats,
        decay=draw(st.sampled_from([0.0, 0.01, 1.0, 40.0, 2000.0])),
        seed=draw(st.integers(0, 2**31)),
    )


@st.composite
def changes(draw):
    """What happens to some of the inputs: a factor for all of one, or zeros in a part of it."""
    name = draw(st.sampled_from(DIFFERENTIABLE))
    part = draw(st.sampled_from([1.0, 0.5, 0.1]))
    value = draw(
        st.sampled_from([0.0, 1.0, 2.0**-40, 2.0**40] if name in ("memory", "v") else [0.0])
    )
    return name, part, value


def _apply(inputs, edits, seed):
    gen = torch.Generator().manual_seed(seed)
    for name, part, factor in edits:
        chosen = torch.rand(inputs[name].shape, generator=gen) < part
        inputs[name] = torch.where(chosen, inputs[name] * factor, inputs[name])


def _drawn_inputs(case, edits=()):
    """Inputs whose writes do not amplify: beta * |k|^2 <= 1 on every slot of a token.

    Beyond that a token may enlarge what it corrects, and the chunk's X holds the product of all
    such factors, whatever the decays and later tokens make of it.
    """
    inputs = make_inputs(case)
    inputs["k_val"] /= inputs["k_val"].abs().sum(-1, keepdim=True).clamp_min(1)
    _apply(inputs, edits, case.seed)
    return inputs


def _outputs(outcome):
    return {"readings": outcome.readings, **outcome.grads}


def _sensitivity(case, inputs, exact):
    """How far each output moves when every input is off by a rounding: its condition, measured."""
    unit = 2.0**-24 if case.dtype == torch.float32 else 2.0**-9
    moved = dict.fromkeys(_outputs(exact), 0.0)
    for seed in range(3):
        gen = torch.Generator().manual_seed(seed)
        nudged = {
            name: x * (1 + unit * torch.randn(x.shape, generator=gen, dtype=torch.float64))
            if x.is_floating_point()
            else x
            for name, x in inputs.items()
        }
        outputs = _outputs(expected(case, nudged, rounded=False))
        for name, x in _outputs(exact).items():
            moved[name] = max(moved[name], (outputs[name] - x).norm().item())
    return moved


@_SETTINGS
@given(cases(), st.lists(changes(), max_size=2))
def test_matches_the_recurrence(case, edits):
    inputs = _drawn_inputs(case, edits)
    found, exact = run(case, inputs), expected(case, inputs)
    limit = 2e-6 if case.dtype == torch.float32 else 2e-2
    sensitivity = _sensitivity(case, inputs, exact)
    # The chunked form takes a gate's gradient as a sum of differences of such terms.
    terms = sum(
        (exact.grads[name] * inputs[name]).abs().sum().item()
        for name in ("k_val", "q_val", "v", "beta")
    )
    wanted = _outputs(exact)
    for name, x in _outputs(found).items():
        error = (x.double() - wanted[name]).norm().item()
        size = wanted[name].norm().item() + (terms if name == "g" else 0.0)
        bound = limit * size + 50 * sensitivity[name] + 1e-30
        assert error <= bound, (name, error, bound)
    assert torch.equal(found.restored, inputs["memory"])


_BAD = [math.nan, math.inf, -math.inf]


@_SETTINGS
@given(
    cases(),
    st.lists(
        st.tuples(st.sampled_from(DIFFERENTIABLE), st.sampled_from(_BAD), st.integers(0, 10**9)),
        min_size=1,
        max_size=3,
    ),
)
def test_what_is_not_finite_comes_out_where_the_recurrence_puts_it(case, faults):
    inputs = _drawn_inputs(case)
    for name, value, where in faults:
        flat = inputs[name].view(-1)
        flat[where % flat.numel()] = value
    found, exact = run(case, inputs), expected(case, inputs)
    assert torch.equal(torch.isfinite(found.readings), torch.isfinite(exact.readings))
    assert torch.equal(torch.isfinite(found.advanced), torch.isfinite(exact.advanced))
    for name in DIFFERENTIABLE:
        lost = torch.isfinite(found.grads[name]) & ~torch.isfinite(exact.grads[name])
        assert not lost.any(), name
    same = (found.restored == inputs["memory"]) | inputs["memory"].isnan()
    assert same.all()
