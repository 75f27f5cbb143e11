"""keep_state=True: after a backward the bank is what the forward left, and another may follow."""

from __future__ import annotations

import pytest
import torch
from op_cases import DIFFERENTIABLE, Case, call, expected, make_grad, make_inputs, make_leaves, run
from op_cases import relative_error as error

CASE = Case(T=70, S=12)
CASES = {
    "f32": CASE,
    "bf16": CASE.but(dtype=torch.bfloat16),
    "bf16 by its name": CASE.but(dtype=torch.bfloat16, options={"snapshot_quant": "bf16"}),
    "two slices": CASE.but(hd=200, gate_per_write=True),
    "f32 gradients of the bank": CASE.but(dtype=torch.bfloat16, options={"grad_bank_fp32": True}),
    "repeats": CASE.but(repeats=True),
    "one-hot": CASE.but(picks="one-hot"),
    "many writes": Case(T=40, S=300, W=200, R=3, C=16, P=1),
}


def leaves(case=CASE, names=DIFFERENTIABLE):
    return make_leaves(case, names)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("segments", [False, True])
def test_the_state_is_kept_to_the_bit_and_a_second_backward_gives_the_same(
    name, segments, monkeypatch
):
    if segments:
        monkeypatch.setattr("sdm_runtime.ops.call.geometry._SEGMENT_BYTES_HOST", 1)
    case = CASES[name]
    wanted, inputs = run(case), leaves(case)
    readings = call(case, inputs, keep_state=True)
    version = inputs["memory"]._version
    given = [inputs[name] for name in DIFFERENTIABLE]
    for again in (True, True, False):
        grads = torch.autograd.grad(readings, given, make_grad(case), retain_graph=again)
        assert torch.equal(inputs["memory"], wanted.advanced)
        assert inputs["memory"]._version == version
        for key, grad in zip(DIFFERENTIABLE, grads, strict=True):
            assert torch.equal(grad, wanted.grads[key]), key


def test_segments_go_on_from_one_bank_without_copies():
    """Truncated backpropagation: each segment's gradients, and the state of one long call."""
    parts = [CASE.but(seed=seed) for seed in range(3)]
    bank = make_inputs(CASE)["memory"]
    exact = bank.double()
    for part in parts:
        inputs = leaves(part, DIFFERENTIABLE[1:]) | {"memory": bank}
        wanted = expected(part, make_inputs(part) | {"memory": exact})
        call(part, inputs, keep_state=True).backward(make_grad(part))
        exact = wanted.advanced
        assert error(bank, exact) < 1e-6
        assert error(inputs["v"].grad, wanted.grads["v"]) < 1e-6


def test_a_learned_bank_may_take_the_next_segment():
    inputs = leaves()
    loss = call(CASE, inputs, keep_state=True).sum()
    loss.backward()
    second = leaves(CASE.but(seed=1), DIFFERENTIABLE[1:]) | {"memory": inputs["memory"]}
    call(CASE, second, keep_state=True).sum().backward()
    assert loss.grad_fn is not None


def test_a_kept_state_below_is_out_of_reach():
    first = leaves(names=["v"])
    second = leaves(CASE.but(seed=1), ["v"]) | {"memory": first["memory"]}
    below, above = call(CASE, first, keep_state=True), call(CASE, second, keep_state=True)
    above.sum().backward()
    with pytest.raises(RuntimeError, match="or which keeps its state"):
        below.sum().backward()


@pytest.mark.parametrize(
    ("dtype", "quant"),
    [(torch.float32, "bf16"), (torch.float32, "fp8"), (torch.bfloat16, "int4")],
)
def test_rounded_snapshots_are_refused(dtype, quant):
    case = CASE.but(dtype=dtype)
    inputs = leaves(case)
    before = inputs["memory"].detach().clone()
    with pytest.raises(ValueError, match="keep_state=True, got " + repr(quant)):
        call(case, inputs, keep_state=True, snapshot_quant=quant)
    assert torch.equal(inputs["memory"], before)


def test_it_is_a_bool():
    with pytest.raises(TypeError, match="keep_state: expected a bool, got 1"):
        call(CASE, leaves(), keep_state=1)


def test_snapshots_that_a_hook_has_rounded_are_refused():
    def rounded(x):
        return x.to(torch.bfloat16).to(x.dtype) if x.is_floating_point() else x

    inputs = leaves()
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, rounded):
        readings = call(CASE, inputs, keep_state=True)
    advanced = inputs["memory"].detach().clone()
    with pytest.raises(ValueError, match="rounded ones from a saved-tensor hook"):
        readings.sum().backward()
    assert torch.equal(inputs["memory"], advanced)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e38])
def test_steps_that_were_run_token_by_token_are_kept_too(value):
    inputs = leaves()
    with torch.no_grad():
        inputs["v"][0, 20, 3] = value
        inputs["beta"][1, 50] = value
    wanted = run(CASE, {k: x.detach() for k, x in inputs.items()})
    readings = call(CASE, inputs, keep_state=True)
    for again in (True, False):
        readings.backward(make_grad(CASE), retain_graph=again)
        assert torch.equal(inputs["memory"].nan_to_num(7.0), wanted.advanced.nan_to_num(7.0))
        assert inputs["memory"].isnan().equal(wanted.advanced.isnan())


def test_a_state_that_cannot_be_made_again_is_told(monkeypatch):
    inputs = leaves(names=["v"])
    readings = call(CASE, inputs, keep_state=True)

    def fails(*_):
        raise MemoryError("no room")

    monkeypatch.setattr("sdm_runtime.ops.backward.run.advance_again", fails)
    with pytest.raises(RuntimeError, match="half restored: no room"):
        readings.sum().backward()
    with pytest.raises(RuntimeError, match="expected a whole bank"):
        call(CASE, inputs)
