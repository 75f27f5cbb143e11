"""slot_select's host twin against the selection in torch; its arguments; its plans."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernel_checks import as_bits, copies, differing
from plan_cases import from_bytes, params_offset, plan_bytes, records, reseal
from select_cases import (
    CASES,
    CODES,
    SelectCase,
    positions,
    projections,
    scores_of,
    select_outputs,
)
from torch.nn import functional as F

from sdm_runtime import PlanError, StepChain, _core
from sdm_runtime.format.plan_format import FieldRecord
from sdm_runtime.format.records import text
from sdm_runtime.layer.candidates import candidate_tables
from sdm_runtime.layer.product_keys import topk_by_table
from sdm_runtime.plan.plan import Plan
from sdm_runtime.tensor.refs import operand_refs


def arguments(
    case: SelectCase, given: dict[str, torch.Tensor], outputs: dict[str, torch.Tensor]
) -> dict[str, Any]:
    """The core's, by name; the whole projection, in which the scores are."""
    made: dict[str, Any] = {}
    for name in ("key", "query"):
        k, activation, scale = case.side(name)
        operands = None
        if k:
            table = positions(case.dims, k).to(given[name].device)
            operands = {"scores": given[name], "positions": table}
            operands |= {
                field.removeprefix(f"{name}_"): made
                for field, made in outputs.items()
                if field.startswith(name)
            }
        made |= {name: operands, f"{name}_first": case.extra // 2}
        made |= {f"{name}_activation": CODES[activation], f"{name}_scale": scale}
    return made | {"widths": list(case.dims), "num_heads": case.heads, "pdl": False}


def for_core(given: dict[str, Any]) -> list[Any]:
    return [operand_refs(x) if isinstance(x, dict) else x for x in given.values()]


def run(case: SelectCase, given: dict[str, torch.Tensor], **changed: Any) -> dict:
    outputs = select_outputs(case)
    made = arguments(case, given, outputs) | changed  # the references keep nothing alive
    _core.slot_select(*for_core(made | {"stream": 0}))
    return outputs


def in_torch(case: SelectCase, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Slots and raw scores of the general way, and the weights that torch makes of them."""
    made = {}
    for name in case.sides:
        k, activation, scale = case.side(name)
        heads = scores_of(case, given[name]).float().unflatten(-1, (case.heads, -1))
        slots, scores = topk_by_table(heads, case.dims, candidate_tables(case.dims, k))
        sequences = torch.arange(case.batch * case.heads, dtype=torch.int32).view(-1, 1, 1)
        made[f"{name}_slots"] = slots.transpose(1, 2).flatten(0, 1) + sequences * case.slots
        weights = scores.transpose(1, 2).flatten(0, 1)
        if activation != "none":
            weights = weights * scale
        if activation == "softmax":
            weights = weights.softmax(-1)
        elif activation == "l2":
            made[f"{name}_norms"] = weights.norm(dim=-1)
            weights = F.normalize(weights, dim=-1)
        made[f"{name}_weights"] = weights
    return made


@pytest.mark.parametrize("name", CASES)
def test_slots_and_weights_are_those_of_torch(name: str) -> None:
    case = CASES[name]
    given = projections(case)
    found, wanted = run(case, given), in_torch(case, given)
    assert found.keys() == wanted.keys()
    for field, values in wanted.items():
        if field.endswith("slots"):
            assert torch.equal(found[field], values), field
        else:
            torch.testing.assert_close(
                found[field], values, rtol=2e-6, atol=1e-7, equal_nan=True, msg=field
            )


@pytest.mark.parametrize("name", ["m awkward", "s f32", "three", "all of two"])
def test_raw_scores_have_the_bits_of_torch(name: str) -> None:
    case = CASES[name]
    given = projections(case)
    raw = {f"{side}_activation": 0 for side in ("key", "query")}
    found, wanted = run(case, given, **raw), in_torch(case, given)
    del wanted
    plain = SelectCase(**{**vars(case), "key_activation": "none", "query_activation": "none"})
    exact = in_torch(plain, given)
    for field in ("key_weights", "query_weights"):
        assert torch.equal(as_bits(found[field]), as_bits(exact[field])), field


def test_strided_scores_are_read_where_they_lie() -> None:
    case = CASES["m"]
    given = projections(case)
    gaps = {}
    for name, scores in given.items():
        wide = torch.full((case.batch, 2 * case.tokens, scores.shape[-1] + 3), torch.nan)
        gaps[name] = wide.to(case.dtype)[:, ::2, 1:-2]
        gaps[name].copy_(scores)
    assert differing(run(case, gaps), run(case, given)) == []


def test_threads_and_rows_change_nothing() -> None:
    case = SelectCase(tokens=70, batch=2, heads=3, values="ties")
    given = projections(case)
    whole = run(case, given)
    single = SelectCase(**{**vars(case), "tokens": 1, "batch": 1})
    for b, t in ((0, 0), (1, 69)):
        part = run(single, {n: p[b : b + 1, t : t + 1].contiguous() for n, p in given.items()})
        for field in ("key_weights", "query_weights"):
            rows = whole[field].view(2, 3, 70, -1)[b, :, t]
            assert torch.equal(as_bits(part[field][:, 0]), as_bits(rows))


WRONG = [
    ({"widths": []}, ValueError, r"widths: expected 1\.\.8 factors, got 0"),
    ({"widths": [128, 1025]}, ValueError, r"widths: expected 1\.\.1024 columns a factor, got 1025"),
    ({"widths": [1024] * 4}, ValueError, "widths: expected fewer than 2"),
    ({"num_heads": 0}, ValueError, r"num_heads: expected 1\.\..*, got 0"),
    ({"num_heads": 3}, ValueError, r"key_first: expected 0\.\.-256"),
    ({"key_first": 1}, ValueError, r"key_first: expected 0\.\.0, with H\*K = 512"),
    ({"key_activation": 2}, ValueError, "key_norms: expected an operand, for l2_normalize"),
    ({"key": None, "query": None}, ValueError, "key_scores: expected keys, queries or both"),
    ({"key.scores": lambda x: x.half()}, TypeError, "key_scores: expected float32 or bfloat16"),
    ({"query.scores": lambda x: x.float()}, TypeError, "query_scores: expected bfloat16, as key"),
    ({"query.scores": lambda x: x[:, 1:]}, ValueError, r"query_scores: expected \[1, 5, columns\]"),
    ({"key.scores": lambda x: x.mT.contiguous().mT}, ValueError, "with stride 1 along"),
    ({"key.slots": lambda x: x[..., :0]}, ValueError, r"key_slots: expected 1\.\.256 slots"),
    ({"key.slots": lambda x: x.long()}, TypeError, r"key_slots: expected int32 \[2, 5, k\]"),
    ({"key.weights": lambda x: x[..., 1:]}, ValueError, r"key_weights: expected float32 \[2, 5, "),
    ({"key.positions": lambda x: x[:20]}, ValueError, r"key_positions: expected 32\.\.\d+ cand"),
    ({"key.positions": lambda x: x[:, :1]}, ValueError, r"key_positions: expected uint8 \[M, 2\]"),
    ({"query.norms": lambda _: torch.zeros(2, 5)}, ValueError, "query_norms: expected none with"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "error", "message"), WRONG)
def test_a_wrong_argument_is_named(change: dict, error: type, message: str) -> None:
    case = CASES["m"]
    outputs = select_outputs(case)
    before = copies(outputs)
    given = arguments(case, projections(case), outputs)
    for name, value in change.items():
        side, _, operand = name.partition(".")
        if operand:
            kept = given[side].get(operand, torch.zeros(1))
            given[side] = {**given[side], operand: value(kept)}
        else:
            given[name] = value
    with pytest.raises(error, match=message):
        _core.slot_select(*for_core(given | {"stream": 0}))
    assert differing(before, outputs) == []


def plan_of(
    case: SelectCase, given: dict, outputs: dict, *, pdl: bool = False
) -> tuple[Plan, dict]:
    made = arguments(case, given, outputs) | {"pdl": pdl}
    operands = {
        f"{name}_{field}": tensor for name in case.sides for field, tensor in made[name].items()
    }
    return Plan._recorded(_core.plan_slot_select(*for_core(made)), operands), operands


@pytest.mark.parametrize("name", ["m", "m view", "l", "six", "m one side"])
def test_a_plan_runs_and_binds_to_others(name: str) -> None:
    case = CASES[name]
    given, outputs = projections(case), select_outputs(case)
    plan, operands = plan_of(case, given, outputs)
    StepChain([plan], 1).run()
    assert differing(outputs, run(case, given)) == []
    # Of other tokens, to other tensors.
    others = {key: x.flip(1).contiguous() for key, x in given.items()}
    later = select_outputs(case)
    again = operands | {f"{side}_scores": x for side, x in others.items()} | later
    StepChain([Plan.from_tensor(plan.tensor).bind(**again)], 1).run()
    assert differing(later, run(case, others)) == []
    assert differing(later, outputs) != []


def changed(data: bytearray, field: str, value: int, part: int = 0) -> bytearray:
    """A plan's bytes with one word of its parameter block changed, and the checksum right."""
    data = bytearray(data)
    for kind, at in records(data):
        if kind is FieldRecord and text((record := kind.unpack(data, at)).name) == field:
            start = params_offset(data) + record.offset + 4 * part
            data[start : start + 4] = value.to_bytes(4, "little", signed=True)
            return reseal(data)
    raise AssertionError(field)


DAMAGE = [
    ("row_type", 3, 0), ("row_type", 1, 0), ("num_factors", 0, 0), ("num_factors", 9, 0),
    ("num_factors", 1, 0), ("widths", 0, 0), ("widths", 1025, 1), ("widths", 129, 1),
    ("widths", 2, 2), ("num_batches", 2, 0), ("num_batches", 0, 0), ("num_tokens", 6, 0),
    ("num_tokens", 4, 0), ("num_heads", 3, 0), ("num_heads", -1, 0), ("by_heads", 1, 0),
    ("by_tokens", 3, 1), ("key_count", 33, 0), ("key_count", 0, 0), ("query_count", 257, 0),
    ("key_candidates", 120, 0), ("key_candidates", 31, 0), ("query_candidates", 1 << 30, 0),
    ("key_activation", 2, 0), ("key_activation", 3, 0), ("query_activation", -1, 0),
    ("key_batch_stride", 1 << 30, 1), ("key_token_stride", 513, 0), ("key_token_stride", -1, 1),
    ("query_token_stride", 1 << 30, 0), ("key_wide_loads", 2, 0),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value", "part"), DAMAGE)
def test_a_plan_that_reaches_past_its_operands_is_refused(
    field: str, value: int, part: int
) -> None:
    case = CASES["m"]
    data = plan_bytes(plan_of(case, projections(case), select_outputs(case))[0])
    assert from_bytes(reseal(data)).kernel == "slot_select"
    with pytest.raises(PlanError):
        from_bytes(changed(data, field, value, part))


@pytest.mark.parametrize("field", ["query_count", "query_candidates", "query_wide_loads"])
def test_a_side_that_is_not_there_has_no_sizes(field: str) -> None:
    case = CASES["m only keys"]
    data = plan_bytes(plan_of(case, projections(case), select_outputs(case))[0])
    from_bytes(reseal(data))
    with pytest.raises(PlanError, match=rf"{field}: expected 0\.\.0, got 1"):
        from_bytes(changed(data, field, 1))


def test_what_a_launch_may_load_early() -> None:
    assert set(_core.early_fields("slot_select")) == {"key_positions", "query_positions"}
