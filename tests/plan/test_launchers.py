"""What a recording sink makes of good launchers, faulty launchers and odd parameter blocks."""

import pytest
import torch
from child_process import run_python
from plan_cases import from_bytes, plan_bytes
from testing_plans import FIXED, ODD_VALUES, faulty, odd_layout_plan, walk_plan

from sdm_runtime import PlanError, StepChain

ODD = (-321, (7, -8, 1 << 30), 250, 0.625, -32768, -(1 << 40), 65535)


def test_every_scalar_arrives_from_a_block_of_odd_sizes():
    """A 2-byte scalar, a 12-byte struct and a lone byte move nothing behind them."""
    out = torch.zeros(3, ODD_VALUES, dtype=torch.float64)
    plan = odd_layout_plan(out, *ODD, steps=3)
    small, triple, *rest = ODD
    StepChain([plan], 3).run()
    assert out.tolist() == [[small, *triple, *rest]] * 3


def test_the_field_table_of_odd_sizes():
    plan = odd_layout_plan(torch.zeros(1, ODD_VALUES, dtype=torch.float64), *ODD, steps=1)
    table = [(field.name, field.type, field.offset, field.size) for field in plan.fields]
    assert table == [
        ("small", "int16", 0, 2),
        ("triple", "bytes", 4, 12),
        ("byte", "uint8", 16, 1),
        ("out", "pointer", 24, 8),
        ("scale", "float32", 32, 4),
        ("tail", "int16", 36, 2),
        ("wide", "int64", 40, 8),
        ("step", "int32", 48, 4),
        ("last", "uint16", 52, 2),
    ]


def test_recording_runs_nothing():
    out = torch.full((1, ODD_VALUES), -1.0, dtype=torch.float64)
    odd_layout_plan(out, *ODD, steps=1)
    assert (out == -1).all()


@pytest.mark.parametrize(
    ("name", "error", "reason"),
    [
        ("launches_twice", PlanError, "launched twice under one plan: testing_odd_layout would"),
        ("launches_nothing", PlanError, "launched nothing: there is no plan"),
        ("throws_before_launch", ValueError, "out: expected another tensor, got float64"),
        ("names_unknown_field", RuntimeError, "internal error.*no field no_such_field"),
        ("asks_odd_alignment", RuntimeError, "internal error.*24 is not a power of two"),
        ("starts_past_operand", RuntimeError, "internal error.*offset past the tensor"),
    ],
)
def test_faulty_launchers_are_named(name, error, reason):
    with pytest.raises(error, match=reason) as caught:
        faulty(name, torch.zeros(1, ODD_VALUES, dtype=torch.float64))
    assert name in str(caught.value) or error is RuntimeError


def test_a_failed_recording_leaves_nothing_behind():
    out = torch.zeros(2, ODD_VALUES, dtype=torch.float64)
    for name in ("launches_twice", "throws_before_launch"):
        with pytest.raises(ValueError, match=name):
            faulty(name, torch.zeros(1, ODD_VALUES, dtype=torch.float64))
        StepChain([odd_layout_plan(out, *ODD, steps=2)], 2).run()
        assert out[:, 0].tolist() == [ODD[0]] * 2


def clamp(line, ti):
    base, stride, lowest, highest = line
    return min(max(base + ti * stride, lowest), highest)


@pytest.mark.parametrize(
    ("bytes_line", "value_line", "first_line"),
    [
        ((0, 4, 0, 1 << 20), FIXED, FIXED),  # a walking pointer
        ((28, -4, 8, 20), (1, 0, 1, 1), FIXED),  # backwards, clamped at both ends
        (FIXED, (-(1 << 40), 1 << 38, -(1 << 39), 1 << 50), (0, 1, 0, 7)),
        ((8, 0, 0, 8), (5, 3, -100, 17), (3, -1, 1, 2)),
    ],
)
def test_patches_follow_their_formula(bytes_line, value_line, first_line):
    steps = 8
    for ti in range(steps):
        out = torch.full((16,), -1.0)
        expected = out.clone()
        plan = walk_plan(
            out,
            bytes_line=bytes_line,
            value_line=value_line,
            first_line=first_line,
            count=2,
            steps=steps,
        )
        StepChain([plan], ti + 1).run()  # ti .. 0
        for t in range(ti, -1, -1):
            at = clamp(bytes_line, t) // 4 + clamp(first_line, t)
            expected[at : at + 2] = float(clamp(value_line, t))
        assert torch.equal(out, expected)


@pytest.mark.parametrize("order", ["descending", "ascending"])
def test_the_steps_run_in_the_chains_order(order):
    """Every step writes the same element: the last one's value stays."""
    out = torch.zeros(1)
    plan = walk_plan(out, value_line=(10, 1, 0, 99), steps=4)
    chain = StepChain([plan], 4, order=order)
    assert chain.order == order
    chain.run()
    assert out.item() == {"descending": 10, "ascending": 13}[order]
    chain.run_timed()
    assert out.item() == {"descending": 10, "ascending": 13}[order]
    assert StepChain([plan], 4).order == "descending"


def test_one_step_runs_alone():
    out = torch.zeros(8)
    plan = walk_plan(out, bytes_line=(0, 4, 0, 28), value_line=(10, 1, 0, 99), steps=4)
    chain = StepChain([plan], 4)
    chain.run_step(2)
    assert out.tolist() == [0, 0, 12, 0, 0, 0, 0, 0]
    for step in (4, -1):
        with pytest.raises(ValueError, match=rf"ti: expected a step in 0..3, got {step}"):
            chain.run_step(step)
    with pytest.raises(PlanError, match="expected a bound plan"):
        chain.unbound().run_step(0)


def test_an_order_is_one_of_two_words():
    plan = walk_plan(torch.zeros(1))
    with pytest.raises(ValueError, match="order: expected 'descending' or 'ascending', got 'up'"):
        StepChain([plan], 1, order="up")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bytes_line": (0, 4, 0, 1 << 20), "steps": 18}, "out: expected steps to .* 0..64"),
        ({"bytes_line": (-4, 0, -4, 0)}, "out: expected steps to .*got bytes -4..-4"),
        ({"bytes_line": (2, 0, 0, 8)}, "multiples of 4"),
        ({"bytes_line": (0, 2, 0, 8), "steps": 5}, "multiples of 4"),
        ({"bytes_line": (60, 0, 0, 60), "count": 2}, "at least 8 bytes, which the parameters"),
        ({"first_line": (0, 1, 0, 20), "steps": 17}, "at least 68 bytes, which the parameters"),
        ({"first_line": (-1, 0, -1, 0)}, "first: expected 0.."),
        ({"first_line": (0, 0, -(1 << 40), 0)}, "clamp leaves int32"),
        ({"value_line": (0, 0, 1, 0)}, "clamp 1..0 is empty"),
        ({"value_line": (1 << 62, 1 << 62, 0, 1), "steps": 3}, "leaves int64"),
    ],
)
def test_patches_that_leave_their_operand_are_refused(changes, reason):
    with pytest.raises(PlanError, match=reason):
        walk_plan(torch.zeros(16), **changes)


def test_an_empty_grid_is_nothing_to_do():
    out = torch.full((4,), -1.0)
    empty = walk_plan(out, value_line=(9, 0, 9, 9), empty=True, steps=3)
    full = walk_plan(out, value_line=(7, 0, 7, 7), first_line=(1, 0, 1, 1), steps=3)
    assert empty.geometry["grid"] == (0, 1, 1)
    only_empty = StepChain([empty], 3)
    only_empty.run()
    assert only_empty.launches == 0
    assert out.tolist() == [-1, -1, -1, -1]
    both = StepChain([empty, full], 3)
    both.run()
    assert both.launches == 3
    assert out.tolist() == [-1, 7, -1, -1]


def test_test_kernels_are_unknown_until_asked_for(tmp_path):
    """Also: a plan of a kernel that this build does not have."""
    plan = odd_layout_plan(torch.zeros(1, ODD_VALUES, dtype=torch.float64), *ODD, steps=1)
    path = tmp_path / "odd.sdmplan"
    plan.save(path)
    program = (
        "import sys, sdm_runtime\n"
        "try: sdm_runtime.Plan.load(sys.argv[1])\n"
        "except sdm_runtime.PlanError as error: print(error)\n"
    )
    done = run_python("-c", program, str(path))
    assert "unknown kernel 'testing_odd_layout' (byte 88)" in done.stdout
    assert from_bytes(plan_bytes(plan)).kernel == "testing_odd_layout"  # the control
