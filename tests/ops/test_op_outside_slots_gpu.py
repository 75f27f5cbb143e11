"""Slots outside their sequence on a GPU: left out, and reported by a call that may look."""

from __future__ import annotations

import pytest
import torch
from op_cases import DIFFERENTIABLE, Case, call, make_grad, make_inputs, relative_error
from outside_cases import OUTSIDE, expected_without, spoiled
from torch import Tensor

from sdm_runtime.ops.call import outside_slots

GUARD = -7.25e30  # around the bank


@pytest.fixture(autouse=True)
def _clear_flag():
    """Of what an earlier test left, and then of what this one did."""
    for last in (False, True):
        torch.cuda.synchronize()
        for flag in outside_slots._flags.values():
            flag.clear()
        if not last:
            yield


def _on_gpu(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {k: x.detach().cuda() for k, x in inputs.items()}


def _guarded(inputs: dict[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
    """On the GPU, the bank with as many guard rows before and behind it as it has."""
    given = _on_gpu(inputs)
    bank = given["memory"]
    room = torch.full((3 * len(bank), bank.shape[1]), GUARD, dtype=bank.dtype, device="cuda")
    given["memory"] = room[len(bank) : 2 * len(bank)]
    given["memory"].copy_(bank)
    return given, room


def _assert_guards_whole(room: Tensor) -> None:
    rows = len(room) // 3
    guard = torch.tensor(GUARD, dtype=room.dtype, device="cuda")
    assert (room[:rows] == guard).all()
    assert (room[2 * rows :] == guard).all()


def _seen() -> bool:
    torch.cuda.synchronize()
    return any(flag.is_set for flag in outside_slots._flags.values())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", OUTSIDE)
def test_entries_outside_do_nothing(name, dtype):
    case = OUTSIDE[name]
    inputs, where = spoiled(case, dtype)
    exact = expected_without(case, inputs, where)
    given, room = _guarded(inputs)
    bank = given["memory"]
    for key in DIFFERENTIABLE[1:]:
        given[key].requires_grad_()
    readings = call(case, given)
    advanced = bank.clone()
    _assert_guards_whole(room)
    readings.backward(make_grad(case).cuda())
    _assert_guards_whole(room)
    limit = 1e-5 if case.dtype == torch.float32 else 1e-2
    assert relative_error(readings.detach().cpu(), exact.readings) < limit
    assert relative_error(advanced.cpu(), exact.advanced) < limit
    for key in DIFFERENTIABLE[1:]:
        narrow = case.options and key in ("k_val", "g", "q_val")
        error = relative_error(given[key].grad.cpu(), exact.grads[key])
        assert error < (0.3 if narrow else limit), key
    assert not given["k_val"].grad[where["k_idx"].cuda()].any()
    assert not given["q_val"].grad[where["q_idx"].cuda()].any()
    if not case.options:
        assert torch.equal(bank.cpu(), inputs["memory"])
    assert _seen()


def test_a_gradient_of_the_bank_has_none_of_them():
    case = Case(T=37)
    inputs, where = spoiled(case)
    given = _on_gpu(inputs)
    given["memory"].requires_grad_()
    call(case, given).backward(make_grad(case).cuda())
    wanted = expected_without(case, inputs, where).grads["memory"]
    assert relative_error(given["memory"].grad.cpu(), wanted) < 1e-5


def test_a_wild_slot_reads_and_writes_nothing():
    """A slot of 1e8 was a fault; so were those of int64 whose low half is a row."""
    case = Case(T=64, S=16, W=8, R=8, C=64)
    for dtype, row in ((torch.int32, 100_000_000), (torch.int64, 2**40 + 3)):
        inputs = make_inputs(case)
        for name in ("k_idx", "q_idx"):
            inputs[name] = torch.full_like(inputs[name], row, dtype=dtype)
        given, room = _guarded(inputs)
        with torch.no_grad():
            assert not call(case, given).any()
        assert torch.equal(given["memory"].cpu(), inputs["memory"])
        _assert_guards_whole(room)
        assert _seen()
        with pytest.raises(ValueError, match="k_idx, q_idx: an earlier call"):
            call(case, _on_gpu(make_inputs(case)))


@pytest.mark.parametrize("name", ["k_idx", "q_idx"])
@pytest.mark.parametrize("saving", [False, True])
def test_the_next_call_reports_once_and_changes_nothing(name, saving):
    case = Case(P=2, T=20, S=8, hd=6, W=3, R=4)
    inputs = _on_gpu(make_inputs(case))
    good = _on_gpu(make_inputs(case))
    bank = good["memory"].clone()
    inputs[name][1, 7, 2] = 5
    inputs["v"].requires_grad_(saving)
    call(case, inputs)
    torch.cuda.synchronize()
    message = rf"^\[sdm_write_read\] {name}: an earlier call .* on cuda:0 had .*row 5 in sequence 1"
    with pytest.raises(ValueError, match=message):
        call(case, good)
    assert torch.equal(good["memory"], bank)
    call(case, good)
    assert not torch.equal(good["memory"], bank)
    assert not _seen()


def test_good_slots_raise_nothing():
    case = Case(T=50)
    for dtype in (torch.int32, torch.int64):
        inputs = make_inputs(case)
        for name in ("k_idx", "q_idx"):
            inputs[name] = inputs[name].to(dtype)
        call(case, _on_gpu(inputs))
        assert not _seen()


def test_the_replay_of_a_captured_call_reports():
    case = Case(T=50)
    inputs, good = _on_gpu(make_inputs(case)), _on_gpu(make_inputs(case))
    with torch.no_grad():
        call(case, inputs)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call(case, inputs)
        graph.replay()
        assert not _seen()
        inputs["q_idx"][0, 3, 1] = case.S
        graph.replay()
        assert _seen()
        with torch.cuda.graph(torch.cuda.CUDAGraph()):  # an error would end the capture
            call(case, good)
        assert _seen()
        with pytest.raises(ValueError, match=r"q_idx: .*\(or the replay of a captured one\)"):
            call(case, good)
        call(case, good)
        inputs["q_idx"][0, 3, 1] = 0
        graph.replay()
        assert not _seen()


def test_a_slot_is_refused_at_once_on_request(monkeypatch):
    monkeypatch.setenv("SDM_CHECK_INDICES", "1")
    case = Case(P=2, T=20, S=8, hd=6, W=3, R=4)
    for name, value in (("k_idx", 8), ("q_idx", -1), ("q_idx", 2**40)):
        inputs = make_inputs(case)
        inputs[name] = inputs[name].long()
        inputs[name][0, 3, 1] = value
        given = _on_gpu(inputs)
        message = rf"{name}: expected rows 0\.\.7 in sequence 0, got {value}"
        with pytest.raises(ValueError, match=message):
            call(case, given)
        assert torch.equal(given["memory"].cpu(), inputs["memory"])
        assert not _seen()
    call(case, _on_gpu(make_inputs(case)))


def test_a_check_on_request_is_left_out_of_a_capture(monkeypatch):
    case = Case(T=50)
    inputs = _on_gpu(make_inputs(case))
    with torch.no_grad():
        call(case, inputs)
        monkeypatch.setenv("SDM_CHECK_INDICES", "1")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call(case, inputs)
        inputs["k_idx"][0, 3, 1] = -1
        graph.replay()
        assert _seen()
