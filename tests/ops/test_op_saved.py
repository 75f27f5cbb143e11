"""What a call saves for its backward, and what saved-tensor hooks may do to it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from op_cases import DIFFERENTIABLE, Case, call, make_grad, make_inputs, make_leaves, run
from op_cases import relative_error as error
from torch.utils.checkpoint import checkpoint

CASE = Case(T=37, S=12)


def _leaves(case=CASE, names=DIFFERENTIABLE):
    return make_leaves(case, names)


def test_saved_tensors_may_be_moved_away():
    moved = []

    def pack(x):
        moved.append(x.shape)
        return x.detach().clone().numpy()

    inputs = _leaves()
    with torch.autograd.graph.saved_tensors_hooks(pack, torch.from_numpy):
        readings = call(CASE, inputs)
    readings.backward(make_grad(CASE))
    assert max(shape.numel() for shape in moved) >= CASE.P * CASE.T // CASE.C * CASE.S * CASE.hd
    wanted = run(CASE)
    for name in DIFFERENTIABLE:
        assert torch.equal(inputs[name].grad, wanted.grads[name]), name
    assert torch.equal(inputs["memory"], make_inputs(CASE)["memory"])


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda x: x.double() if x.dtype == torch.float32 else x, TypeError, "got float64"),
        (lambda x: x.flatten(), ValueError, r"delta .* float32 \[6, 16, 16\] on cpu, got float32"),
        (lambda x: x.to("meta"), ValueError, "on meta from a saved-tensor hook"),
    ],
)
def test_saved_tensors_that_come_back_as_others_are_refused(change, kind, message):
    inputs = _leaves()
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, change):
        readings = call(CASE, inputs)
    advanced = inputs["memory"].detach().clone()
    with pytest.raises(kind, match=rf"^\[sdm_write_read\] backward: .*{message}"):
        readings.backward(make_grad(CASE))
    assert torch.equal(inputs["memory"], advanced)


def test_saved_tensors_may_come_back_with_other_strides():
    inputs, wanted = _leaves(), run(CASE)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda x: x, lambda x: x.transpose(0, -1).clone().transpose(0, -1)
    ):
        readings = call(CASE, inputs)
    readings.backward(make_grad(CASE))
    for name in DIFFERENTIABLE:
        assert torch.equal(inputs[name].grad, wanted.grads[name]), name


@pytest.mark.parametrize("offset", [4, 8, 16])
@pytest.mark.parametrize(
    "case", [CASE, CASE.but(hd=256, dtype=torch.bfloat16, options={"snapshot_quant": "fp8"})]
)
def test_saved_tensors_may_come_back_at_any_address(case, offset):
    """As views of one buffer do, into which a hook has put them."""

    def elsewhere(x):
        first = max(offset // x.element_size(), 1)
        return x.new_empty(first + x.numel())[first:].view(x.shape).copy_(x)

    inputs, wanted = _leaves(case), run(case)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, elsewhere):
        readings = call(case, inputs)
    readings.backward(make_grad(case))
    for name in DIFFERENTIABLE:
        assert torch.equal(inputs[name].grad, wanted.grads[name]), name
    assert torch.equal(inputs["memory"], wanted.restored)


def test_hooks_that_round_floats_leave_the_records_whole():
    inputs, wanted = _leaves(), run(CASE)

    def rounded(x):
        return x.to(torch.bfloat16).to(x.dtype) if x.is_floating_point() else x

    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, rounded):
        readings = call(CASE, inputs)
    readings.backward(make_grad(CASE))
    for name in DIFFERENTIABLE:
        assert 0 < error(inputs[name].grad, wanted.grads[name]) < 0.1, name


@pytest.mark.parametrize("change", ["narrow", "flip", "round", "zero"])
def test_records_that_a_hook_has_changed_are_refused(change):
    """Their bits are rows to the kernels: a bank would be read and written anywhere."""

    def changed(x):
        if x.dtype != torch.uint8:
            return x
        words = x.view(torch.int64).clone()
        if change == "narrow":
            words = words.to(torch.int32).to(torch.int64)
        elif change == "flip":
            words[len(words) // 2] ^= 1 << 40
        else:
            words = words // 256 * 256 if change == "round" else words * 0
        return words.view(torch.uint8)

    inputs = _leaves()
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, changed):
        readings = call(CASE, inputs)
    advanced = inputs["memory"].detach().clone()
    with pytest.raises(ValueError, match="expected the saved records as the forward left them"):
        readings.backward(make_grad(CASE))
    assert torch.equal(inputs["memory"], advanced)


def test_hooks_that_pack_wide_integers_leave_the_records_whole():
    def pack(x):
        return (x.dtype, x.to(torch.int32)) if x.dtype == torch.int64 else (x.dtype, x)

    inputs = _leaves()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed[1].to(packed[0])):
        readings = call(CASE, inputs)
    readings.backward(make_grad(CASE))
    assert torch.equal(inputs["v"].grad, run(CASE).grads["v"])


def test_hooks_on_a_single_saved_tensor_are_refused():
    inputs = _leaves()
    readings = call(CASE, inputs)
    node: Any = readings.grad_fn
    node._raw_saved_tensors[0].register_hooks(torch.clone, torch.clone)
    with pytest.raises(ValueError, match=r"saved delta .* a hook for this one tensor"):
        readings.backward(make_grad(CASE))


@pytest.mark.parametrize("rounds", [True, False])
def test_a_restore_from_a_rounded_snapshot_is_not_called_exact(rounds):
    def changed(x):
        if x.shape != (CASE.P * 3 * CASE.S, CASE.hd):
            return x.clone()
        return x.to(torch.bfloat16).to(x.dtype) if rounds else x.clone()

    inputs = _leaves(names=["v"])
    bank, version = inputs["memory"].clone(), inputs["memory"]._version
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, changed):
        readings = call(CASE, inputs)
    readings.backward(make_grad(CASE))
    assert torch.equal(inputs["memory"], bank) != rounds
    assert (inputs["memory"]._version == version) != rounds


def test_a_checkpointed_call_is_restored_to_the_bit():
    versions = []

    def layer(memory, v):
        bank = memory.clone()
        inputs = make_inputs(CASE) | {"memory": bank, "v": v}
        readings = call(CASE, inputs)
        readings.register_hook(lambda _: versions.append(bank))
        return readings

    inputs = _leaves(names=["memory", "v"])
    readings = checkpoint(layer, inputs["memory"], inputs["v"], use_reentrant=False)
    readings.backward(make_grad(CASE))
    assert versions
    assert versions[0]._version == 0  # as after clone()
    assert torch.equal(inputs["v"].grad, run(CASE).grads["v"])


def test_an_input_may_be_written_after_the_call():
    # The forward saves its records of the inputs, not the inputs.
    inputs = _leaves(names=["v"])
    readings = call(CASE, inputs)
    for name in ("k_idx", "k_val", "beta", "g", "q_idx", "q_val"):
        inputs[name].zero_()
    readings.backward(make_grad(CASE))
    assert torch.equal(inputs["v"].grad, run(CASE).grads["v"])


@pytest.mark.parametrize("hd", [16, 256])
def test_what_is_saved_for_an_entry(hd):
    """Bytes besides rows, matrices and inputs, as sdm_runtime/ops/DESIGN.md counts them."""
    case = CASE.but(hd=hd, T=32)
    inputs = _leaves(case)
    saved: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda _: None):
        call(case, inputs)
    given = {x.data_ptr() for x in inputs.values()}
    assert not any(x.data_ptr() in given for x in saved)
    chunks = case.P * case.T // case.C
    matrices = {(chunks, case.C, case.C), (chunks, case.C, hd), (chunks * case.S, hd)}  # S < C*W
    rest = sum(x.nbytes for x in saved if tuple(x.shape) not in matrices)
    tokens, staged_factor = chunks * case.C, 4 if hd > 128 else 0
    blocks = 4 * chunks * (-(-case.C * case.W // 32) + 1)
    assert rest == tokens * (4 + (40 + staged_factor) * case.W + 32 * case.R) + blocks


@pytest.mark.parametrize("hd", [16, 256])
def test_gradients_hold_no_other_memory(hd):
    case = CASE.but(hd=hd)
    inputs = _leaves(case)
    call(case, inputs).backward(make_grad(case))
    for name in DIFFERENTIABLE:
        grad = inputs[name].grad
        assert grad.untyped_storage().nbytes() == grad.nbytes, name


def test_hooks_may_be_any_callables():
    inputs, wanted = _leaves(), run(CASE)
    with torch.autograd.graph.saved_tensors_hooks(torch.Tensor.clone, torch.Tensor.detach):
        readings = call(CASE, inputs)
    readings.backward(make_grad(CASE))
    assert torch.equal(inputs["v"].grad, wanted.grads["v"])
