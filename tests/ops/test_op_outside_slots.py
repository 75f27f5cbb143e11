"""Slots outside their sequence: refused on the CPU, left out by kernels that nobody waits for."""

from __future__ import annotations

import re

import pytest
import torch
from op_cases import DIFFERENTIABLE, Case, call, make_grad, make_inputs, relative_error, run
from outside_cases import OUTSIDE, expected_without, foreign_rows, spoiled

from sdm_runtime import _core
from sdm_runtime.ops.call import checks, outside_slots
from sdm_runtime.ops.call.outside_slots import OutsideFlag, outside_words, report_outside_slots
from sdm_runtime.ops.call.staging import Inputs
from sdm_runtime.tensor.refs import operand_refs

CASE = Case(P=2, T=20, S=8, hd=6, W=3, R=4)
LARGE = Case(P=2, T=3000, S=64, hd=2, W=8, R=8, C=64)  # more slots than one thread looks through
DEVICE = torch.device("cuda", 0)


def _refused(case, inputs, message, **options):
    """The call changes nothing and says so."""
    before = {k: x.clone() for k, x in inputs.items()}
    version = inputs["memory"]._version
    with pytest.raises(ValueError, match="^" + re.escape(f"[sdm_write_read] {message}") + "$"):
        call(case, inputs, **options)
    assert all(torch.equal(inputs[k], x) for k, x in before.items())
    assert inputs["memory"]._version == version


@pytest.mark.parametrize("saving", [False, True])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", ["k_idx", "q_idx"])
def test_every_slot_outside_is_refused_on_the_cpu(name, dtype, saving):
    for sequence in (0, 1):
        for row in foreign_rows(CASE, dtype)[sequence, 0].tolist():
            inputs = make_inputs(CASE)
            inputs[name] = inputs[name].to(dtype)
            inputs[name][sequence, 7, 2] = row
            inputs["v"].requires_grad_(saving)
            low = 8 * sequence
            expected = f"expected rows {low}..{low + 7} in sequence {sequence}, got {row}"
            _refused(CASE, inputs, f"{name}: {expected}")


def test_the_first_slot_outside_is_named():
    inputs = make_inputs(CASE)
    inputs["q_idx"][0, 0, 0] = 77
    inputs["k_idx"][1, 4, 0], inputs["k_idx"][1, 3, 2], inputs["k_idx"][1, 3, 1] = 50, -3, 60
    _refused(CASE, inputs, "k_idx: expected rows 8..15 in sequence 1, got 60")


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("rows", [[-1], [16], [2**31 - 1]])
def test_a_shared_bank_has_rows_for_all(rows, dtype):
    inputs = make_inputs(CASE)
    options = {"num_memory_slots": 0, "shared_bank": True}
    inputs["k_idx"] = inputs["k_idx"].to(dtype)
    inputs["k_idx"][0, 0, 0], inputs["k_idx"][0, 0, 1] = 15, 0
    call(CASE, inputs, **options)
    inputs["k_idx"][1, 19, 2] = rows[0]
    _refused(CASE, inputs, f"k_idx: expected rows 0..15 in sequence 1, got {rows[0]}", **options)


def _strided(x):
    """The same indices, [P, T, n], in many layouts."""
    p, t, n = x.shape
    wide = x.new_full((p, t, n + 2), 99)
    wide[..., 1:-1] = x
    apart = x.new_full((p, t, 2 * n), 99)
    apart[..., ::2] = x
    return {
        "rows": x.reshape(p * t, n),
        "columns of more": wide[..., 1:-1],
        "every second": apart[..., ::2],
        "tokens first": x.transpose(0, 1).contiguous().transpose(0, 1),
        "entries first": x.permute(2, 0, 1).contiguous().permute(1, 2, 0),
    }


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", ["k_idx", "q_idx"])
def test_slots_are_looked_at_whatever_their_strides(name, dtype):
    good = make_inputs(CASE)[name].to(dtype)
    bad = good.clone()
    bad[1, 13, 1] = 16
    for layout, x in _strided(good).items():
        call(CASE, make_inputs(CASE) | {name: x})  # what lies between is no slot
        inputs = make_inputs(CASE) | {name: _strided(bad)[layout]}
        _refused(CASE, inputs, f"{name}: expected rows 8..15 in sequence 1, got 16")
    spread = good[:, :1].expand(-1, CASE.T, -1)
    call(CASE, make_inputs(CASE) | {name: spread})


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_slots_shared_out_among_threads(dtype, threads):
    """Wherever the one outside is, and the first of two."""
    inputs = make_inputs(LARGE)
    inputs["k_idx"] = inputs["k_idx"].to(dtype)
    for where in ((0, 0, 0), (0, 2999, 7), (1, 1500, 3), (1, 2999, 7)):
        bad = inputs["k_idx"].clone()
        bad[where] = bad[1, 2999, 7] = -5
        low = 64 * where[0]
        message = f"k_idx: expected rows {low}..{low + 63} in sequence {where[0]}, got -5"
        _refused(LARGE, inputs | {"k_idx": bad}, message)


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture
def unchecked(monkeypatch):
    """The CPU's kernels as a device's: nobody looks at the slots first."""
    monkeypatch.setattr(checks, "_check_indices", lambda *_: None)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", OUTSIDE)
def test_entries_outside_do_nothing(name, dtype, unchecked):
    case = OUTSIDE[name]
    inputs, where = spoiled(case, dtype)
    exact, given = expected_without(case, inputs, where), run(case, inputs)
    limit = 2e-6 if case.dtype == torch.float32 else 1e-2
    assert relative_error(given.readings, exact.readings) < limit
    assert relative_error(given.advanced, exact.advanced) < limit
    for key in DIFFERENTIABLE:
        narrow = case.options and key in ("k_val", "g", "q_val")  # int4 snapshots
        error = relative_error(given.grads[key], exact.grads[key])
        assert error < (0.3 if narrow else limit), key
    assert not given.grads["k_val"][where["k_idx"]].any()
    assert not given.grads["q_val"][where["q_idx"]].any()
    if case.gate_per_write:
        assert not given.grads["g"][where["k_idx"]].any()
    if not case.options:
        assert torch.equal(given.restored, inputs["memory"])
    with torch.no_grad():
        assert torch.equal(call(case, {k: x.clone() for k, x in inputs.items()}), given.readings)


def test_tokens_without_a_slot_inside(unchecked):
    """Of all entries outside: the bank stays, readings and gradients are zero."""
    case = Case(T=21)
    inputs, where = spoiled(case, share=1.1)
    assert where["k_idx"].all()
    given = run(case, inputs)
    assert torch.equal(given.advanced, inputs["memory"])
    assert torch.equal(given.restored, inputs["memory"])
    assert not given.readings.any()
    assert not any(x.any() for x in given.grads.values())


def test_nothing_of_another_row_reaches_a_token_outside(unchecked):
    """No row stands in for the one that is not there: all that nobody names may hold NaN."""
    case = Case(P=2, T=21, S=40)
    inputs, where = spoiled(case)
    named = torch.zeros(case.P * case.S, dtype=torch.bool)
    for name in ("k_idx", "q_idx"):
        shifted = inputs[name] % case.S + torch.arange(case.P).view(-1, 1, 1) * case.S
        kept = torch.where(shifted % case.S == 0, shifted + 1, shifted)  # row 0 is nobody's
        inputs[name] = torch.where(where[name], inputs[name], kept.int())
        named[inputs[name][~where[name]].long()] = True
    assert not named[0]
    inputs["memory"][~named] = torch.nan
    given = run(case, inputs)
    assert given.readings.isfinite().all()
    assert torch.equal(given.advanced.isnan().any(1), ~named)
    for key, grad in given.grads.items():
        assert grad.isfinite().all(), key


def test_nothing_outside_the_bank_is_written(unchecked):
    case = Case(T=37)
    inputs, _ = spoiled(case)
    rows = len(inputs["memory"])
    room = torch.full((3 * rows, case.hd), -7.25e30)
    room[rows:-rows] = inputs["memory"]
    leaves = inputs | {"memory": room[rows:-rows], "v": inputs["v"].requires_grad_()}
    readings = call(case, leaves)
    guards = torch.cat((room[:rows], room[-rows:]))
    assert (guards == -7.25e30).all()
    readings.backward(make_grad(case))
    assert torch.equal(room[rows:-rows], inputs["memory"])
    assert (torch.cat((room[:rows], room[-rows:])) == -7.25e30).all()


# The flag, in memory that no device writes.


@pytest.fixture
def flags(monkeypatch):
    """No device has a flag; torch pins nothing, and no stream is captured."""
    found: dict[int, OutsideFlag] = {}
    monkeypatch.setattr(outside_slots, "_flags", found)
    monkeypatch.setattr(outside_slots, "capturing", lambda device: False)
    monkeypatch.setattr(
        outside_slots, "_pinned_words", lambda: torch.full((2,), -1, dtype=torch.int64)
    )
    return found


def _tell(flags, k_idx=0, q_idx=0):
    words = flags[0].words
    words[0], words[1] = k_idx, q_idx


def test_a_flag_is_made_once_for_a_device_and_is_clear(flags):
    assert outside_words(DEVICE) is None
    report_outside_slots(DEVICE)
    words = outside_words(DEVICE)
    assert words is not None
    assert words.tolist() == [0, 0]
    report_outside_slots(DEVICE)
    assert outside_words(DEVICE) is words
    assert outside_words(torch.device("cuda", 1)) is None
    assert outside_words(torch.device("cpu")) is None


@pytest.mark.parametrize(
    ("k_idx", "q_idx", "words"),
    [
        (1 << 32 | 99, 0, "k_idx: .* row 99 in sequence 0 among them"),
        (0, 4 << 32 | 0xFFFFFFFF, "q_idx: .* row -1 in sequence 3 among them"),
        (
            1 << 32 | 0x7FFFFFFF,
            7 << 32 | 0x80000000,
            "k_idx, q_idx: .* row 2147483647 or above in sequence 0 and "
            "row -2147483648 or below in sequence 6 among them",
        ),
        ((2**31 - 1) << 32 | 5, 0, "k_idx: .* row 5 in sequence 2147483646 among them"),
    ],
)
def test_a_flag_is_reported_once_by_name(k_idx, q_idx, words, flags):
    report_outside_slots(DEVICE)
    _tell(flags, k_idx, q_idx)
    with pytest.raises(
        ValueError, match=rf"^\[sdm_write_read\] {words}; .*SDM_CHECK_INDICES=1"
    ) as e:
        report_outside_slots(DEVICE)
    assert "on cuda:0 had slots outside" in str(e.value)
    report_outside_slots(DEVICE)
    assert flags[0].words.tolist() == [0, 0]


def test_a_capture_neither_reports_nor_clears(flags, monkeypatch):
    report_outside_slots(DEVICE)
    _tell(flags, 1 << 32)
    with monkeypatch.context() as capture:
        capture.setattr(outside_slots, "capturing", lambda device: device == DEVICE)
        report_outside_slots(DEVICE)
        assert outside_words(DEVICE) is flags[0].words
    with pytest.raises(ValueError, match="row 0 in sequence 0"):
        report_outside_slots(DEVICE)


def test_a_first_call_inside_a_capture_warns_and_pins_nothing(flags, monkeypatch):
    monkeypatch.setattr(outside_slots, "_pinned_words", lambda: pytest.fail("in a capture"))
    monkeypatch.setattr(outside_slots, "capturing", lambda device: True)
    with pytest.warns(UserWarning, match=r"the first call on cuda:0 is inside a graph capture"):
        report_outside_slots(DEVICE)
    assert outside_words(DEVICE) is None


def test_the_check_of_a_device_finds_what_the_core_finds():
    """_find_outside on CPU tensors against the core's pass."""
    for dtype in (torch.int32, torch.int64):
        for share in (0.0, 0.01, 0.5):
            case = Case(P=3, T=20, S=8)
            inputs, _ = spoiled(case, dtype, share)
            given = Inputs(**{k: x for k, x in inputs.items() if k != "memory"})
            found = checks._find_outside(inputs["memory"], given, case.S)
            refs = operand_refs({k: inputs[k] for k in ("k_idx", "q_idx")})
            wanted = _core.outside_slot(refs, case.S, case.P * case.S)
            assert found == wanted
            assert (found is None) == (share == 0.0)
