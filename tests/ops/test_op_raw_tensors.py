"""Tensors that torch shows otherwise than memory holds them: refused before the bank advances."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch
from op_cases import Case, call, make_inputs
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

from sdm_runtime.ops.call.plain_tensors import check_apart

CASE = Case(P=2, T=20, S=8, hd=6, W=3, R=4)
FLOATS = ("memory", "k_val", "v", "beta", "g", "q_val")


def refused(inputs, error, message):
    bank = inputs["memory"]
    before = bank.clone()
    with pytest.raises(error, match=rf"^\[sdm_write_read\] {message}"):
        call(CASE, inputs)
    assert torch.equal(bank, before)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("saving", [False, True])
def test_tangents_are_refused(name, saving):
    with forward_ad.dual_level():
        inputs = make_inputs(CASE)
        x = inputs[name].requires_grad_(saving)
        inputs[name] = forward_ad.make_dual(x, torch.ones_like(x))
        refused(inputs, ValueError, f"{name}: expected no tangent")


TRANSFORMS = {
    "grad": lambda f, v: torch.func.grad(f)(v),
    "vmap": lambda f, v: torch.func.vmap(f)(torch.stack([v, v])),
    "jvp": lambda f, v: torch.func.jvp(f, (v,), (torch.ones_like(v),)),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_function_transforms_are_refused(transform):
    inputs = make_inputs(CASE)
    before = inputs["memory"].clone()
    with pytest.raises(TypeError, match=r"^\[sdm_write_read\] v: expected a tensor outside of"):
        TRANSFORMS[transform](lambda v: call(CASE, inputs | {"v": v}).sum(), inputs["v"])
    assert torch.equal(inputs["memory"], before)


@pytest.mark.parametrize("name", FLOATS)
def test_negating_views_are_refused(name):
    inputs = make_inputs(CASE)
    inputs[name] = torch._neg_view(inputs[name])
    refused(inputs, ValueError, f"{name}: .* a view that negates them")


@pytest.mark.parametrize("name", make_inputs(CASE))
def test_fake_tensors_are_refused(name):
    inputs = make_inputs(CASE)
    bank = inputs["memory"]
    before = bank.clone()
    inputs[name] = FakeTensorMode().from_tensor(inputs[name])
    with pytest.raises(TypeError, match=rf"^\[sdm_write_read\] {name}: .* got a FakeTensor"):
        call(CASE, inputs)
    assert torch.equal(bank, before)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_and_scalar_indices_are_refused():
    inputs = make_inputs(CASE)
    whole = inputs["q_idx"]
    inputs["q_idx"] = torch.nested.nested_tensor([whole[0], whole[1, :3]])
    refused(inputs, TypeError, "q_idx: expected a dense tensor, got nested")
    inputs["q_idx"] = whole[0, 0, 0]
    refused(inputs, ValueError, r"q_idx: expected \[P, T, \.\]")


def test_inputs_in_the_bank_are_refused_and_beside_it_are_not():
    inputs = make_inputs(CASE)
    room = torch.zeros(16 * 6 + 40)
    room[: 16 * 6] = inputs["memory"].flatten()
    room[16 * 6 :] = inputs["beta"].flatten()
    inputs["memory"] = room[: 16 * 6].view(16, 6)
    inputs["beta"] = room[16 * 6 - 1 : -1].view(2, 20, 1)
    refused(inputs, ValueError, "beta: expected memory apart from the bank")
    inputs["beta"] = room[16 * 6 :].view(2, 20, 1)
    call(CASE, inputs)


def from_numpy(x):
    return torch.from_numpy(x.numpy())


def set_on_an_address(x):
    buffer = (ctypes.c_byte * x.untyped_storage().nbytes()).from_address(
        x.untyped_storage().data_ptr()
    )
    return torch.frombuffer(buffer, dtype=x.dtype)


ALIASES = {"dlpack": torch.from_dlpack, "numpy": from_numpy, "address": set_on_an_address}


@pytest.mark.parametrize("alias", ALIASES)
@pytest.mark.parametrize("name", ["k_val", "v", "q_val"])
def test_another_storage_over_the_bank_is_refused(alias, name):
    inputs = make_inputs(CASE)
    wide = inputs[name].shape[-1]
    lying = 2 * 20 * wide  # elements that the input takes
    room = torch.zeros(1000)
    other = ALIASES[alias](room).flatten()
    if alias != "dlpack":  # which shares the storage
        assert other.untyped_storage().data_ptr() == room.data_ptr()
    # The bank in the middle; inputs that begin before it, in it, at its end, and a wide view.
    inputs["memory"] = room[500:596].view(16, 6)
    for first, refusal in ((501 - lying, True), (550, True), (595, True), (596, False)):
        inputs[name] = other[first : first + lying].view(2, 20, wide)
        if refusal:
            refused(inputs, ValueError, f"{name}: expected memory apart from the bank")
        else:
            call(CASE, inputs)
    inputs[name] = other[500 - lying : 500].view(2, 20, wide)
    call(CASE, inputs)


def test_storages_that_begin_apart_are_told_by_their_elements():
    """A storage of its own that begins inside of the bank's: the bases differ."""
    inputs = make_inputs(CASE)
    room = np.zeros(400, dtype=np.float32)
    whole, part = torch.from_numpy(room), torch.from_numpy(room[50:])
    inputs["memory"] = whole[:96].view(16, 6)
    inputs["beta"] = part[:40].view(2, 20, 1)
    assert part.untyped_storage().data_ptr() != whole.untyped_storage().data_ptr()
    refused(inputs, ValueError, "beta: expected memory apart from the bank")
    inputs["beta"] = part[46:86].view(2, 20, 1)
    call(CASE, inputs)


def test_what_has_no_elements_or_few_lies_nowhere_else():
    room = torch.zeros(400)
    bank = room[100:196].view(16, 6)
    for apart in (room[150:150], room[120:120].view(0, 3), room[99:100].expand(50, 1), room[196:]):
        check_apart(bank, "x", apart)
    check_apart(bank[:0], "x", room)
    spread = room.as_strided((2, 3), (50, 1), 90)  # rows before and in the bank
    for within in (room[195:196].expand(50, 1), spread, room[:101], room, room[100:].view(-1, 1)):
        with pytest.raises(ValueError, match="x: expected memory apart from the bank"):
            check_apart(bank, "x", within)


def test_a_bank_without_memory_is_refused_by_forward_and_backward():
    inputs = make_inputs(CASE)
    inputs["v"].requires_grad_()
    readings = call(CASE, inputs)
    inputs["memory"].untyped_storage().resize_(0)
    with pytest.raises(ValueError, match=r"bank: expected a storage of 384 bytes, got 0 bytes"):
        readings.sum().backward()
    with pytest.raises(ValueError, match=r"memory: expected a storage of 384 bytes, got 0 bytes"):
        call(CASE, inputs)


def test_readings_may_be_changed_in_place():
    gradients = []
    for double in (lambda y: y.mul_(2), lambda y: y * 2):
        inputs = make_inputs(CASE)
        inputs["v"].requires_grad_()
        double(call(CASE, inputs)).sum().backward()
        gradients.append(inputs["v"].grad)
    assert torch.equal(*gradients)
