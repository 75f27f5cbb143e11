"""What must not change a bit: threads, the caller's floating-point mode, a plan, drawn operands."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import ROW_TYPES, Shape
from kernel_checks import assert_matches_reference, case, copies, differing, run

from sdm_runtime import StepChain, kernels
from sdm_runtime.kernels.steps import step_tables

STEP_KERNELS = sorted(step_tables())
SHAPES = st.builds(
    Shape,
    hd=st.sampled_from([1, 2, 4, 6, 9, 64, 66, 128, 132]),
    sequences=st.integers(1, 3),
    chunk=st.integers(1, 9),
    writes=st.integers(1, 4),
    reads=st.integers(1, 4),
    steps=st.integers(1, 3),
    slots=st.integers(4, 12),
    padding=st.just(0),
    hot=st.booleans(),
    repeat=st.booleans(),
    per_entry=st.booleans(),
    no_snapshot=st.booleans(),
    few_rows=st.booleans(),
    types=st.sampled_from(ROW_TYPES),
    special=st.booleans(),
    seed=st.integers(0, 2**20),
).flatmap(
    lambda shape: st.builds(
        Shape, **{k: st.just(v) for k, v in vars(shape).items() if k not in ("padding", "hd")},
        padding=st.integers(0, shape.chunk - 1),
        hd=st.just(shape.hd + (shape.hd % 2 if shape.types[1] == "int4" else 0)),
    )
)  # fmt: skip


@pytest.fixture
def flush_denormals():
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    yield
    torch.set_flush_denormal(False)


@pytest.mark.parametrize("name", STEP_KERNELS)
@settings(max_examples=40, deadline=None)
@given(shape=SHAPES)
def test_drawn_operands_match_the_reference(name, shape):
    assert_matches_reference(name, shape)


@pytest.mark.parametrize("name", STEP_KERNELS)
@pytest.mark.parametrize("hd", [64, 1100])
def test_threads_change_no_bit(name, hd, threads):
    shape = Shape(hd=hd, chunk=40, writes=5, reads=7, slots=32, hot=True, special=True, padding=9)
    tensors, sizes = case(name, shape)
    threads(1)
    alone = run(name, tensors, sizes)
    for count in (2, 5):
        threads(count)
        assert differing(alone, run(name, tensors, sizes)) == []


@pytest.mark.parametrize("name", STEP_KERNELS)
def test_callers_denormal_mode_changes_no_bit(name, flush_denormals, threads):
    shape = Shape(hd=36, special=True, seed=2)
    tensors, sizes = case(name, shape)
    for count in (1, 2):
        threads(count)
        torch.set_flush_denormal(False)
        expected = run(name, tensors, sizes)
        torch.set_flush_denormal(True)
        assert differing(expected, run(name, tensors, sizes)) == []


def test_denormals_are_kept(flush_denormals):
    """The control: the mode is on and torch flushes, the kernel does not."""
    tiny = torch.full((1, 1, 4), 1e-40)
    one = torch.ones(1, 1, 1)
    torch.set_flush_denormal(False)
    expected = tiny * 2
    torch.set_flush_denormal(True)
    assert (tiny + tiny).view(torch.int32).eq(0).all()
    d_u = tiny.clone()
    kernels.gx_gemm(d_u, one, tiny, ti=0, num_parallel=1)
    assert torch.equal(d_u.view(torch.int32), expected.view(torch.int32))


@pytest.mark.parametrize("name", STEP_KERNELS)
@pytest.mark.parametrize("per_entry", [False, True])
def test_a_plan_does_what_the_steps_do(name, per_entry):
    shape = Shape(hd=130, steps=3, types=("f32", "int4", "f32"), per_entry=per_entry)
    tensors, sizes = case(name, shape)
    by_steps, by_plan = copies(tensors), copies(tensors)
    for ti in (1, 0):
        getattr(kernels, name)(**by_steps, ti=ti, **sizes)
    plan = getattr(kernels, f"plan_{name}")(**by_plan, steps=2, **sizes)
    assert differing(by_plan, tensors) == []  # recording runs nothing
    StepChain([plan], 2).run()
    assert differing(by_steps, by_plan) == []
    assert differing(by_plan, tensors) != []
