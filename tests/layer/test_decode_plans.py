"""The decoding step as a plan: recorded, saved, bound to others, and damaged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from decode_cases import BF16, F32, DecodeCase, copied, decode_inputs, decoded
from guarded import GuardedTensor
from kernel_checks import differing
from plan_cases import edited as with_members
from plan_cases import find_reloc, from_bytes, params_offset, plan_bytes, records, reseal

from sdm_runtime import Plan, PlanError, StepChain, _core
from sdm_runtime.format.plan_format import FieldRecord, PlanHeader, RelocRecord
from sdm_runtime.format.records import text
from sdm_runtime.layer.decode_step import plan_decode_step
from sdm_runtime.tensor.refs import plan_memory

CASES = {
    "contiguous": DecodeCase(T=2, hd=36, W=3, R=2, S=7),
    "strided": DecodeCase(B=2, T=2, hd=20, W=3, R=2, S=7, strided=True, bank=BF16),
    "weighted": DecodeCase(hd=8, key_weighted=True),
    "a gate a write": DecodeCase(hd=8, gates=5, v=BF16),
}
OPERANDS = ("bank", "k_idx", "k_val", "v", "beta", "g", "q_idx", "q_val", "readings")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_plan_does_what_the_call_does(case: DecodeCase, tmp_path: Path) -> None:
    inputs = decode_inputs(case)
    expected = decoded(case, inputs)
    recorded = copied(inputs)
    plan = plan_decode_step(**recorded, **case.options)
    assert differing({key: recorded[key] for key in inputs}, inputs) == []  # nothing has run
    assert tuple(operand.name for operand in plan.operands) == OPERANDS
    assert plan.steps == 1
    StepChain([plan], 1).run()
    assert differing(expected, {key: recorded[key] for key in expected}) == []

    plan.save(tmp_path / "decode.plan")
    again = copied(inputs)
    memory = {key: plan_memory(again[key]) for key in ("v", "readings")}
    loaded = Plan.load(tmp_path / "decode.plan").bind(**again | memory)
    StepChain([loaded], 1).run()
    assert differing(expected, {key: again[key] for key in expected}) == []


def test_memory_runs_from_the_first_element_to_the_last() -> None:
    x = torch.arange(60.0).view(3, 20)[:, 4:9]
    assert plan_memory(x).tolist() == list(range(4, 49))
    assert plan_memory(x[0]).tolist() == x[0].tolist()


def test_it_loads_nothing_before_its_wait() -> None:
    assert list(_core.early_fields("decode_step")) == []
    source = Path(__file__).parents[2] / "csrc/kernels/layer/decode_step/decode_step.cuh"
    assert "before the wait" not in source.read_text()


def edited(data: bytes | bytearray, **changed: int) -> bytearray:
    """A plan's bytes with other numbers in its parameter block."""
    data = bytearray(data)
    for kind, at in records(data):
        if kind is FieldRecord and (name := text((field := kind.unpack(data, at)).name)) in changed:
            start = params_offset(data) + field.offset
            number = changed.pop(name).to_bytes(field.size, "little", signed=True)
            data[start : start + field.size] = number
    assert changed == {}
    return reseal(data)


# hd 20, P 4, H 2, S 7, T 2, W 3, R 2, strides of rows that hold 53.
REFUSED = [
    ("hd", 21), ("hd", 0), ("hd", -1), ("hd", 1 << 21), ("num_parallel", 5), ("num_parallel", 6),
    ("num_parallel", 0), ("num_heads", 3), ("num_heads", 0), ("num_heads", 8), ("num_heads", 1),
    ("num_slots", 8), ("num_slots", 0), ("num_slots", (1 << 31) - 1), ("num_tokens", 3),
    ("num_tokens", 257), ("num_tokens", 0), ("num_writes", 4), ("num_writes", 257),
    ("num_writes", 0), ("num_reads", 3), ("num_reads", -1), ("num_gates", 2), ("num_gates", 3),
    ("key_weighted", 2), ("bank_type", 1), ("bank_type", 3), ("bank_type", 0), ("v_type", 1),
    ("v_type", 4), ("reserved", 1), ("v_batch", -1), ("v_batch", 107), ("v_token", 54),
    ("v_head", 26), ("v_head", 1 << 62), ("readings_batch", 107), ("readings_token", 1 << 49),
    ("readings_head", -25),
]  # fmt: skip


@pytest.mark.parametrize(("field", "number"), REFUSED)
def test_numbers_that_reach_past_the_operands(field: str, number: int) -> None:
    case = CASES["strided"]
    data = plan_bytes(plan_decode_step(**decode_inputs(case), **case.options))
    from_bytes(edited(data))
    with pytest.raises(PlanError, match=r"\[decode_step\] \w+: expected .*byte \d+"):
        from_bytes(edited(data, **{field: number}))


NUMBERS = (-(1 << 31), -1, 0, 1, 2, 3, 4, 5, 7, 8, 20, 53, 256, 257, (1 << 31) - 1)
FIELDS = (
    "v_batch", "v_token", "v_head", "readings_batch", "readings_token", "readings_head",
    "num_parallel", "num_heads", "num_slots", "num_tokens", "num_writes", "num_reads", "num_gates",
    "key_weighted", "hd", "bank_type", "v_type", "reserved",
)  # fmt: skip


@pytest.mark.parametrize("name", ["strided", "a gate a write"])
def test_every_number_is_refused_or_stays_inside(name: str) -> None:
    """What is accepted runs between pages that fault."""
    case = CASES[name]
    inputs = decode_inputs(case)
    data = plan_bytes(plan_decode_step(**inputs, **case.options))
    flat = inputs | {key: plan_memory(inputs[key]) for key in ("v", "readings")}
    guarded = {key: GuardedTensor(x) for key, x in flat.items()}
    fates = {"refused": 0, "ran": 0}
    for field in FIELDS:
        for number in NUMBERS:
            try:
                plan = from_bytes(edited(data, **{field: number}))
            except PlanError:
                fates["refused"] += 1
                continue
            StepChain([plan.bind(**{k: x.tensor for k, x in guarded.items()})], 1).run()
            fates["ran"] += 1
    assert fates["refused"] > 100
    assert fates["ran"] > 40


def shared_bytes(columns: int, element: int, writes: int, reads: int) -> int:
    """What a block keeps: rows; records, logs, terms, weights and slots of entries; residuals."""
    parts = [(writes + reads) * columns * element, 16 * writes, 8 * writes, 8 * reads, 4 * writes]
    parts += [4 * writes, 4 * reads, 4 * writes, 4 * reads, 4 * columns]
    return sum(-(-size // 16) * 16 for size in parts)


def device_plan(case: DecodeCase, align: int = 4, **changed: object) -> bytearray:
    """A host plan's bytes as those of a CUDA plan in slices of 64 columns."""
    data = plan_bytes(plan_decode_step(**decode_inputs(case), **case.options))
    data = with_members(data, RelocRecord, find_reloc(data, "bank"), align_log2=align)
    header: dict = {"backend": 2, "device_uuid": bytes(range(16)), "capability_major": 9}
    header |= {"entry": b"decode_step_bf16_s64", "grid": (2, case.P, 1), "block": (256, 1, 1)}
    header |= {"shared_bytes": shared_bytes(64, 2, case.W, case.R)}
    return with_members(data, PlanHeader, 0, **header | changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"grid": (1, 2, 1)},
        {"grid": (2, 2, 2)},
        {"block": (128, 1, 1)},
        {"cluster": (2, 1, 1)},
        {"shared_bytes": 64},
        {"entry": b"decode_step_bf16_s32"},
        {"entry": b"decode_step_f32_s64"},
        {"entry": b"decode_step_any_s64"},
        {"entry": b"decode_step"},
        {"align": 1},
    ],
)
def test_launches_that_the_sizes_do_not_have(changed: dict) -> None:
    case = DecodeCase(bank=BF16, hd=96)
    from_bytes(device_plan(case))
    with pytest.raises(PlanError, match=r"\[decode_step\] (hd|bank|bank_type): expected"):
        from_bytes(device_plan(case, **changed))


def test_rows_of_no_whole_pieces_go_element_by_element() -> None:
    case = DecodeCase(bank=BF16, hd=100)
    with pytest.raises(PlanError, match="hd: expected a multiple of 8 for decode_step_bf16_s64"):
        from_bytes(device_plan(case))
    shared = shared_bytes(32, 4, case.W, case.R)
    any_rows = {"entry": b"decode_step_any_s32", "grid": (4, 2, 1), "shared_bytes": shared}
    from_bytes(device_plan(case, align=1, **any_rows))


def test_bound_memory_has_the_recorded_size() -> None:
    case = CASES["strided"]
    inputs = decode_inputs(case)
    plan = plan_decode_step(**inputs, **case.options)
    flat = inputs | {key: plan_memory(inputs[key]) for key in ("v", "readings")}
    plan.bind(**flat)
    with pytest.raises(PlanError, match=re.escape("bind v: expected")):
        plan.bind(**flat | {"v": flat["v"][1:]})
    with pytest.raises(PlanError, match="memory that does not overlap"):
        plan.bind(**flat | {"v": flat["readings"]})


@pytest.mark.parametrize("pdl", [1, None])
def test_pdl_is_a_bool(pdl: object) -> None:
    case = DecodeCase(bank=F32)
    with pytest.raises(TypeError, match="pdl: expected a bool"):
        plan_decode_step(**decode_inputs(case), **case.options, pdl=pdl)  # type: ignore[arg-type]
