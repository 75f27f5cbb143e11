"""The decoding step's host twin: against the operation, the recurrence, and itself."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from decode_cases import (
    BF16,
    CASES,
    F32,
    DecodeCase,
    Tensors,
    copied,
    decode_inputs,
    decoded,
    every_case,
    gates_of,
    in_wider_rows,
    recurrence64,
    to_sequences,
)
from kernel_checks import differing

from sdm_runtime import sdm_write_read
from sdm_runtime.layer.decode_step import decode_step

NAMED = dict(every_case())
SPECIAL = DecodeCase(W=4, R=4, S=5, hd=8)


def operation(case: DecodeCase, inputs: Tensors) -> Tensors:
    """The same by sdm_write_read."""
    bank = inputs["bank"].clone()
    readings = sdm_write_read(
        bank,
        inputs["k_idx"],
        inputs["k_val"],
        to_sequences(inputs["v"]),
        inputs["beta"].unsqueeze(-1),
        gates_of(case, inputs) if case.key_weighted else inputs["g"],
        inputs["q_idx"],
        inputs["q_val"],
        num_memory_slots=case.S,
        num_parallel=case.P,
    )
    per_head = readings.view(case.B, case.H, case.T, case.hd).transpose(1, 2)
    return {"bank": bank, "readings": per_head}


@pytest.mark.parametrize("name", NAMED)
def test_one_token_has_the_operations_bits(name: str) -> None:
    case = NAMED[name]
    inputs = decode_inputs(case)
    found = decoded(case, inputs)
    assert differing(found, operation(case, inputs)) == []
    assert not torch.equal(found["bank"], inputs["bank"])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("bank", [F32, BF16])
def test_many_tokens_follow_the_recurrence(case: DecodeCase, bank: torch.dtype) -> None:
    case = replace(case, T=5, bank=bank, hd=36)
    inputs = decode_inputs(case)
    found, expected = decoded(case, inputs), recurrence64(case, inputs)
    near = 3e-5 if bank == F32 else 3e-2
    for key, tensor in found.items():
        scale = float(expected[key].abs().max())
        torch.testing.assert_close(tensor.double(), expected[key], rtol=near, atol=near * scale)
    chunked = operation(case, inputs)
    for key, tensor in found.items():
        scale = float(expected[key].abs().max())
        torch.testing.assert_close(tensor, chunked[key], rtol=near, atol=2 * near * scale)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("bank", [F32, BF16])
def test_tokens_are_calls_of_one_token(case: DecodeCase, bank: torch.dtype) -> None:
    case = replace(case, T=7, bank=bank, hd=40)
    inputs = decode_inputs(case)
    at_once = decoded(case, inputs)
    one_by_one = copied(inputs)
    for t in range(case.T):
        token = {key: x if key == "bank" else x[:, t : t + 1] for key, x in one_by_one.items()}
        fit = {key: x.contiguous() for key, x in token.items() if key not in ("v", "readings")}
        decode_step(**token | fit, **case.options)
    assert differing(at_once, {key: one_by_one[key] for key in at_once}) == []
    backwards = copied(inputs)
    for t in reversed(range(case.T)):
        token = {key: x if key == "bank" else x[:, t : t + 1] for key, x in backwards.items()}
        fit = {key: x.contiguous() for key, x in token.items() if key not in ("v", "readings")}
        decode_step(**token | fit, **case.options)
    assert differing(at_once, {key: backwards[key] for key in at_once}) != []  # the control


@pytest.mark.parametrize(("bank", "v"), [(F32, BF16), (BF16, F32)])
def test_values_are_rounded_to_the_banks_dtype(bank: torch.dtype, v: torch.dtype) -> None:
    case = DecodeCase(bank=bank, v=v, hd=20)
    inputs = decode_inputs(case)
    rounded = inputs | {"v": inputs["v"].to(bank)}
    assert differing(decoded(case, inputs), decoded(case, rounded)) == []
    assert differing(decoded(case, inputs), operation(case, inputs)) == []


def test_weights_are_rounded_to_the_banks_dtype_but_not_for_the_gate() -> None:
    case = DecodeCase(bank=BF16, key_weighted=True)
    inputs = decode_inputs(case)
    gates = replace(case, key_weighted=False, gates=case.W)
    weights = {name: inputs[name].bfloat16().float() for name in ("k_val", "q_val")}
    same = inputs | weights | {"g": inputs["g"] * inputs["k_val"]}
    assert differing(decoded(case, inputs), decoded(gates, same)) == []
    other = inputs | weights
    assert differing(decoded(case, inputs), decoded(case, other)) != []


@pytest.mark.parametrize("bank", [F32, BF16])
def test_strided_rows_are_those_of_contiguous_ones(bank: torch.dtype) -> None:
    case = DecodeCase(B=3, T=4, H=2, hd=24, bank=bank)
    inputs = decode_inputs(case)
    expected = decoded(case, inputs)
    per_head = inputs["readings"].transpose(1, 2).contiguous().transpose(1, 2)
    for v in (in_wider_rows(inputs["v"]), inputs["v"].transpose(0, 2).clone().transpose(0, 2)):
        for readings in (in_wider_rows(inputs["readings"]), per_head):
            strided = inputs | {"v": v, "readings": readings}
            assert differing(decoded(case, strided), expected) == []


def test_what_lies_between_strided_rows_is_untouched() -> None:
    case = DecodeCase(B=2, T=3, strided=True)
    after = copied(decode_inputs(case))
    decode_step(**after, **case.options)
    whole = after["readings"].new_empty(after["readings"].untyped_storage().nbytes() // 4)
    whole.untyped_storage().copy_(after["readings"].untyped_storage())
    assert int((~whole.isnan()).sum()) == after["readings"].numel()


def test_one_value_may_be_every_heads() -> None:
    case = DecodeCase(B=2, T=3)
    inputs = decode_inputs(case)
    shared = inputs | {"v": inputs["v"][:, :, :1].expand(-1, -1, case.H, -1)}
    copy = shared | {"v": shared["v"].contiguous()}
    assert differing(decoded(case, shared), decoded(case, copy)) == []


@pytest.mark.parametrize("bank", [F32, BF16])
def test_rows_of_other_sequences_are_neither_read_nor_written(bank: torch.dtype) -> None:
    case = DecodeCase(H=3, W=6, R=6, S=9, hd=12, T=2, bank=bank)
    inputs = decode_inputs(case)
    middle = slice(case.S, 2 * case.S)
    far = torch.tensor([-(1 << 31), -1, 0, (1 << 31) - 1], dtype=torch.int32)
    strange = copied(inputs)
    few = copied(inputs)
    for idx, val in (("k_idx", "k_val"), ("q_idx", "q_val")):
        strange[idx][1, :, 0], strange[idx][1, :, 1] = far[0], far[1]
        strange[idx][1, :, 4], strange[idx][1, :, 5] = 2 * case.S, far[3]
        strange[val][1, :, :2] = torch.nan
        few[idx], few[val] = few[idx][..., 2:4].contiguous(), few[val][..., 2:4].contiguous()
    found = decoded(case, strange)
    expected = decoded(replace(case, W=2, R=2), few)
    assert differing({"b": found["bank"][middle]}, {"b": expected["bank"][middle]}) == []
    assert differing({"y": found["readings"][:, :, 1]}, {"y": expected["readings"][:, :, 1]}) == []
    others = [slice(0, case.S), slice(2 * case.S, None)]
    whole = decoded(case, inputs)
    for rows in others:
        assert torch.equal(found["bank"][rows], whole["bank"][rows])
    assert not torch.equal(found["bank"][middle], whole["bank"][middle])


def test_entries_that_all_do_nothing() -> None:
    case = DecodeCase(H=1)
    inputs = decode_inputs(case)
    nowhere = inputs | {"k_idx": inputs["k_idx"] + case.S, "q_idx": inputs["q_idx"] - case.S}
    found = decoded(case, nowhere)
    assert torch.equal(found["bank"], inputs["bank"])
    assert bool((found["readings"] == 0).all())


@pytest.mark.parametrize("g", [-torch.inf, -1e30, -1000.0, -200.0, 0.0, 3.0])
def test_gates_at_their_ends(g: float) -> None:
    inputs = decode_inputs(SPECIAL)
    inputs["g"].fill_(g)
    assert differing(decoded(SPECIAL, inputs), operation(SPECIAL, inputs)) == []


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 3e38])
def test_what_is_not_finite_stays_in_its_column(value: float) -> None:
    inputs = decode_inputs(SPECIAL)
    expected = decoded(SPECIAL, inputs)
    inputs["v"][..., 3] = value
    found = decoded(SPECIAL, inputs)
    others = [c for c in range(SPECIAL.hd) if c != 3]
    for key in found:
        assert torch.equal(found[key][..., others], expected[key][..., others])
        assert not torch.equal(found[key][..., 3], expected[key][..., 3])


def test_a_gate_that_is_nan_spoils_its_rows_alone() -> None:
    case = replace(SPECIAL, H=1, gates=SPECIAL.W)
    inputs = decode_inputs(case)
    inputs["g"][..., 1] = torch.nan
    found = decoded(case, inputs)
    untouched = sorted(set(range(case.S)) - set(inputs["k_idx"].flatten().tolist()))
    assert torch.equal(found["bank"][untouched], inputs["bank"][untouched])
    assert found["bank"][inputs["k_idx"][0, 0, 1]].isnan().all()


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_bit(threads: int) -> None:
    case = DecodeCase(B=2, H=4, T=3, W=16, R=16, S=40, hd=1030, repeats=True)
    inputs = decode_inputs(case)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = decoded(case, inputs)
        torch.set_num_threads(threads)
        assert differing(decoded(case, inputs), expected) == []
    finally:
        torch.set_num_threads(before)


def test_versions_of_what_is_written_are_raised() -> None:
    case = DecodeCase()
    inputs = decode_inputs(case)
    before = {key: x._version for key, x in inputs.items()}
    decode_step(**inputs, **case.options)
    raised = {key for key, x in inputs.items() if x._version > before[key]}
    assert raised == {"bank", "readings"}


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "bank of halves": ({"bank": torch.zeros(24, 64).half()}, TypeError, "bank: expected"),
    "bank of one dimension": ({"bank": torch.zeros(24)}, ValueError, "bank: expected"),
    "bank with strides": ({"bank": torch.zeros(64, 24).T}, ValueError, "bank: expected"),
    "wide slots": ({"k_idx": torch.zeros(2, 1, 5).long()}, TypeError, "k_idx: expected int32"),
    "no tokens": ({"k_idx": torch.zeros(2, 0, 5).int()}, ValueError, "k_idx: expected 1..256"),
    "too many writes": (
        {"k_idx": torch.zeros(2, 1, 257).int()}, ValueError, "k_idx: expected 1..256, got 257",
    ),
    "weights of another size": (
        {"k_val": torch.zeros(2, 1, 4)}, ValueError, "k_val: expected float32 [2, 1, 5]",
    ),
    "rounded weights": ({"q_val": torch.zeros(2, 1, 4).bfloat16()}, TypeError, "q_val: expected"),
    "other reads": ({"q_idx": torch.zeros(1, 1, 4).int()}, ValueError, "q_idx: expected"),
    "no reads": ({"q_idx": torch.zeros(2, 1, 0).int()}, ValueError, "q_idx: expected 1..256"),
    "v of sequences": ({"v": torch.zeros(2, 1, 64)}, ValueError, "v: expected [B, 1, H, 64]"),
    "v of other heads": ({"v": torch.zeros(1, 1, 3, 64)}, ValueError, "v: expected [B, T, H, hd]"),
    "v by columns": (
        {"v": torch.zeros(1, 1, 64, 2).transpose(2, 3)}, ValueError, "v: expected [B, 1, H, 64]",
    ),
    "v of halves": ({"v": torch.zeros(1, 1, 2, 64).half()}, TypeError, "v: expected float32 or"),
    "beta of a token": ({"beta": torch.zeros(2)[:1]}, ValueError, "beta: expected float32 with 2"),
    "gates of others": ({"g": torch.zeros(2, 1, 3)}, ValueError, "g: expected float32 with 10"),
    "readings of another dtype": (
        {"readings": torch.zeros(1, 1, 2, 64).bfloat16()}, TypeError, "readings: expected",
    ),
    "readings of another batch": (
        {"readings": torch.zeros(2, 1, 1, 64)}, ValueError, "readings: expected [1, 1, 2, 64]",
    ),
    "readings that overlap": (
        {"readings": torch.zeros(1, 1, 1, 64).expand(1, 1, 2, 64)}, ValueError,
        "readings: expected rows that do not overlap",
    ),
    "slots of others": ({"slots": 11}, ValueError, "slots: expected the 24 rows of the bank over"),
    "no slots": ({"slots": 0}, ValueError, "slots: expected"),
    "slots by name": ({"slots": "12"}, TypeError, "slots: expected an int"),
    "a number for a flag": ({"key_weighted": 1}, TypeError, "key_weighted: expected a bool"),
    "weighted gates of writes": (
        {"key_weighted": True, "g": torch.zeros(2, 1, 5)}, ValueError,
        "g: expected float32 with 2 elements (gates times k_val are one a token)",
    ),
    "a list": ({"v": [1.0]}, TypeError, "[decode_step] v: expected a torch.Tensor"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_change_nothing(name: str) -> None:
    change, error, message = WRONG[name]
    case = DecodeCase()
    given: dict[str, Any] = decode_inputs(case) | case.options | change
    before = copied({key: x for key, x in given.items() if isinstance(x, torch.Tensor)})
    with pytest.raises(error, match=re.escape(message)) as caught:
        decode_step(**given)
    assert str(caught.value).startswith("[decode_step] ")
    assert differing(before, {key: given[key] for key in before}) == []


@pytest.mark.parametrize("shared", ["v", "k_val", "readings"])
def test_memory_of_the_bank_is_no_other_operands(shared: str) -> None:
    case = DecodeCase()
    inputs = decode_inputs(case)
    size = inputs[shared].numel()
    inputs[shared] = inputs["bank"].flatten()[:size].view(inputs[shared].shape)
    with pytest.raises(ValueError, match=f"{shared}: expected memory apart from bank"):
        decode_step(**inputs, **case.options)
