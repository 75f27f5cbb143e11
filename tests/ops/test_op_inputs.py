"""Shapes, strides and dtypes that the operation takes, and what comes back."""

from __future__ import annotations

import pytest
import torch
from op_cases import DIFFERENTIABLE, Case, call, make_grad, make_inputs, run

import sdm_runtime

CASE = Case(gate_per_write=True, T=37)


def _same(given, wanted):
    assert torch.equal(given.readings, wanted.readings)
    for name in DIFFERENTIABLE:
        assert torch.equal(given.grads[name].view_as(wanted.grads[name]), wanted.grads[name]), name


@pytest.mark.parametrize("flat", [["k_idx"], ["v", "g"], list(make_inputs(CASE))])
def test_two_dimensional_inputs_give_the_same_bits(flat):
    inputs = make_inputs(CASE)
    for name in flat:
        inputs[name] = inputs[name].flatten(0, -2)
    given = run(CASE, inputs)
    _same(given, run(CASE))
    for name in DIFFERENTIABLE:
        assert given.grads[name].shape == inputs[name].shape


def test_int64_indices_give_the_same_bits():
    inputs = make_inputs(CASE)
    for name in ("k_idx", "q_idx"):
        inputs[name] = inputs[name].long()
    _same(run(CASE, inputs), run(CASE))


def test_inputs_of_any_strides_give_the_same_bits():
    inputs = make_inputs(CASE)
    leaves = {}
    for name, x in inputs.items():
        if name != "memory":
            x = x.transpose(0, 1).contiguous().transpose(0, 1)
            assert not x.is_contiguous()
        leaves[name] = x.requires_grad_() if x.is_floating_point() else x
    call(CASE, leaves).backward(make_grad(CASE))
    wanted = run(CASE)
    for name in DIFFERENTIABLE:
        assert torch.equal(leaves[name].grad, wanted.grads[name]), name


def test_gate_of_one_column_is_a_shared_gate():
    case = CASE.but(gate_per_write=False)
    inputs = make_inputs(case)
    wide = {**inputs, "g": inputs["g"].expand(-1, -1, case.W).contiguous()}
    given, wanted = run(case, wide), run(case, inputs)
    assert torch.equal(given.readings, wanted.readings)
    torch.testing.assert_close(given.grads["g"].sum(-1, keepdim=True), wanted.grads["g"])


@pytest.mark.parametrize("bank", [torch.float32, torch.bfloat16])
def test_gradients_have_their_inputs_dtypes(bank):
    narrow, half, wide = torch.bfloat16, torch.float16, torch.float64
    dtypes = {"k_val": narrow, "v": half, "beta": wide, "g": narrow, "q_val": bank}
    inputs = make_inputs(CASE.but(dtype=bank))
    for name, dtype in dtypes.items():
        inputs[name] = inputs[name].to(dtype)
    given = run(CASE.but(dtype=bank), inputs)
    assert given.readings.dtype == bank
    assert given.readings.shape == (CASE.P * CASE.T, CASE.hd)
    for name in DIFFERENTIABLE:
        assert given.grads[name].dtype == inputs[name].dtype, name
        assert given.grads[name].shape == inputs[name].shape, name
        assert given.grads[name].abs().sum() > 0, name


def test_weights_and_values_are_rounded_to_the_bank_on_entry():
    case = CASE.but(dtype=torch.bfloat16)
    inputs = make_inputs(case)
    rounded = dict(inputs)
    for name in ("k_val", "v", "q_val"):
        rounded[name] = inputs[name].bfloat16().float()
        assert not torch.equal(rounded[name], inputs[name])
    _same(run(case, inputs), run(case, rounded))


def test_shared_bank_of_sequences_with_their_own_slots():
    wanted = run(CASE)
    given = run(CASE, num_memory_slots=0, shared_bank=True)
    _same(given, wanted)


def test_one_sequence_needs_no_slot_count():
    case = CASE.but(P=1)
    _same(run(case, num_memory_slots=0), run(case))


def test_process_wide_defaults_do_not_matter():
    inputs, wanted = make_inputs(CASE), run(CASE)
    old = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            given = run(CASE, inputs)
    finally:
        torch.set_default_dtype(old)
    _same(given, wanted)


@pytest.mark.parametrize("quant", ["none", "bf16", "fp8", "int4"])
@pytest.mark.parametrize("bad", [0.0, float("nan")])  # a NaN: token by token
def test_the_default_device_does_not_matter(quant, bad):
    inputs = make_inputs(CASE)
    inputs["v"][0, 3, 0] += bad
    wanted = run(CASE, inputs, snapshot_quant=quant)
    leaves = {k: x.clone() for k, x in inputs.items()}
    for name in DIFFERENTIABLE:
        leaves[name].requires_grad_()
    grad = make_grad(CASE)
    with torch.device("meta"):
        readings = call(CASE, leaves, snapshot_quant=quant)
        readings.backward(grad)
    grads = {name: leaves[name].grad for name in DIFFERENTIABLE}
    given = wanted.grads | {"readings": wanted.readings, "restored": wanted.restored}
    for name, x in (grads | {"readings": readings, "restored": leaves["memory"]}).items():
        assert torch.equal(x.nan_to_num(7), given[name].nan_to_num(7)), name


def test_short_calls_need_no_long_chunk():
    # T = 20 fits one chunk of 20 tokens or more, whatever chunk_size says.
    case = CASE.but(T=20)
    assert torch.equal(run(case, chunk_size=64).readings, run(case, chunk_size=256).readings)
    assert sdm_runtime.last_dispatch()["geometry"]["C"] == 20
