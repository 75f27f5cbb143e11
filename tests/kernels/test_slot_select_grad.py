"""slot_select_grad's host twin against float64; its arguments; its plans."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernel_checks import as_bits, copies, differing
from plan_cases import from_bytes, plan_bytes, reseal
from select_cases import CASES, CODES, SelectCase, grad_inputs, grad_outputs
from test_slot_select import changed, for_core

from sdm_runtime import PlanError, StepChain, _core
from sdm_runtime.plan.plan import Plan


def arguments(case: SelectCase, given: dict, outputs: dict) -> dict[str, Any]:
    """The core's, by name."""
    made: dict[str, Any] = {}
    for name in ("key", "query"):
        _, activation, scale = case.side(name)
        operands = {
            field.removeprefix(f"{name}_"): tensor
            for field, tensor in (given | outputs).items()
            if field.startswith(name)
        }
        made |= {name: operands or None, f"{name}_activation": CODES[activation]}
        made |= {f"{name}_scale": scale}
    return made | {"widths": list(case.dims), "num_heads": case.heads}


def run(case: SelectCase, given: dict, **others: Any) -> dict[str, torch.Tensor]:
    outputs = grad_outputs(case)
    made = arguments(case, given, outputs) | others
    _core.slot_select_grad(*for_core(made | {"stream": 0}))
    return outputs


def exact(case: SelectCase, given: dict, name: str) -> torch.Tensor:
    """A side's d_scores in float64."""
    _, activation, scale = case.side(name)
    d = given[f"{name}_d_weights"].double()
    if activation != "none":
        w = given[f"{name}_weights"].double()
        dot = (w * d).sum(-1, keepdim=True)
        if activation == "softmax":
            d = w * (d - dot)
        else:
            norm = given[f"{name}_norms"].unsqueeze(-1)
            part = torch.where(norm < 1e-12, 0.0, 1.0)
            d = (d - part * w * dot) / norm.double().clamp_min(1e-12)
        d = d * scale
    slots = given[f"{name}_slots"].long() % case.slots
    dense = torch.zeros(case.batch * case.heads, case.tokens, case.columns, dtype=torch.float64)
    offset = 0
    for column, width in zip(torch.unravel_index(slots, case.dims), case.dims, strict=True):
        dense.scatter_add_(-1, column + offset, d)
        offset += width
    dense = dense.unflatten(0, (case.batch, case.heads)).transpose(1, 2)
    return dense.flatten(2)


@pytest.mark.parametrize("name", [name for name in CASES if "awkward" not in CASES[name].values])
def test_gradients_are_those_of_float64(name: str) -> None:
    case = CASES[name]
    given = grad_inputs(case)
    for field, found in run(case, given).items():
        wanted = exact(case, given, field.partition("_")[0])
        assert found.shape == wanted.shape
        assert torch.equal(found == 0, wanted == 0) or case.values != "normal"
        scale = 1e-6 if case.dtype == torch.float32 else 8e-3
        error = (found.double() - wanted).abs()
        assert (error <= scale * (wanted.abs() + wanted.abs().amax(-1, keepdim=True))).all()


def test_sums_go_in_slot_order() -> None:
    """Of one column: ((a + b) + c) in slot order, whatever other order would give."""
    case = SelectCase(dims=(8, 8), k=3, q=0, heads=1, tokens=1, key_activation="none",
                      dtype=torch.float32)  # fmt: skip
    given = {
        "key_slots": torch.tensor([[[8, 9, 10]]], dtype=torch.int32),
        "key_d_weights": torch.tensor([[[1.0, 2.0**24, -(2.0**24)]]]),
    }
    assert run(case, given)["key_d_scores"][0, 0, 1] == 0.0
    given["key_d_weights"] = given["key_d_weights"].flip(-1)
    assert run(case, given)["key_d_scores"][0, 0, 1] == 1.0


def test_what_is_not_finite_stays_in_its_columns() -> None:
    case = SelectCase(dims=(3, 3), k=3, q=0, heads=1, tokens=1, key_activation="none",
                      dtype=torch.float32)  # fmt: skip
    given = {
        "key_slots": torch.tensor([[[0, 1, 3]]], dtype=torch.int32),
        "key_d_weights": torch.tensor([[[1.0, torch.inf, 1.0]]]),
    }
    found = run(case, given)["key_d_scores"][0, 0].tolist()
    assert found == [torch.inf, 1.0, 0.0, 2.0, torch.inf, 0.0]


WRONG = [
    ({"widths": [128]}, ValueError, r"key_d_scores: expected bfloat16 \[B, T, 256\]"),
    ({"num_heads": 0}, ValueError, r"num_heads: expected 1\.\."),
    ({"key.d_scores": lambda x: x.half()}, TypeError, "key_d_scores: expected float32 or bf"),
    ({"query.d_scores": lambda x: x.float()}, TypeError, "query_d_scores: expected bfloat16"),
    ({"key.slots": lambda x: x[..., 1:].contiguous()}, ValueError, "key_d_weights: expected float"),
    ({"key.slots": lambda x: x[1:]}, ValueError, r"key_slots: expected int32 \[2, 5, k\]"),
    ({"key.d_weights": lambda x: x.double()}, TypeError, "key_d_weights: expected float32"),
    ({"key_activation": 0}, ValueError, "key_weights: expected none without an activation"),
    ({"query_activation": 2}, ValueError, "query_norms: expected an operand, for l2_normalize"),
    ({"key": None, "query": None}, ValueError, "key_d_scores: expected keys, queries or both"),
]


@pytest.mark.parametrize(("change", "error", "message"), WRONG)
def test_a_wrong_argument_is_named(change: dict, error: type, message: str) -> None:
    case = CASES["m"]
    outputs = grad_outputs(case)
    before = copies(outputs)
    made = arguments(case, grad_inputs(case), outputs)
    for name, value in change.items():
        side, _, operand = name.partition(".")
        if operand:
            made[side] = {**made[side], operand: value(made[side][operand])}
        else:
            made[name] = value
    with pytest.raises(error, match=message):
        _core.slot_select_grad(*for_core(made | {"stream": 0}))
    assert differing(before, outputs) == []


def plan_of(case: SelectCase, given: dict, outputs: dict) -> Plan:
    made = arguments(case, given, outputs)
    return Plan._recorded(_core.plan_slot_select_grad(*for_core(made)), given | outputs)


@pytest.mark.parametrize("name", ["m", "m one side", "l", "six", "m only keys"])
def test_a_plan_runs_and_binds_to_others(name: str) -> None:
    case = CASES[name]
    given, outputs = grad_inputs(case), grad_outputs(case)
    plan = plan_of(case, given, outputs)
    StepChain([plan], 1).run()
    assert differing(outputs, run(case, given)) == []
    later = grad_outputs(case)
    others = given | {k: x.flip(1).contiguous() for k, x in given.items() if "d_w" in k}
    StepChain([Plan.from_tensor(plan.tensor).bind(**others, **later)], 1).run()
    assert differing(later, run(case, others)) == []
    assert all(not torch.equal(as_bits(later[k]), as_bits(outputs[k])) for k in later)


DAMAGE = [
    ("row_type", 1, 0), ("row_type", 4, 0), ("num_factors", 0, 0), ("num_factors", 1, 0),
    ("widths", 0, 0), ("widths", 127, 1), ("widths", 1, 7), ("by_parts", 1, 0),
    ("by_parts", 5, 1), ("num_columns", 255, 0), ("num_batches", 2, 0), ("num_tokens", 6, 0),
    ("num_heads", 3, 0), ("by_heads", 7, 1), ("by_tokens", 0, 0), ("key_count", 33, 0),
    ("key_count", 0, 0), ("query_count", 300, 0), ("key_activation", 0, 0),
    ("key_activation", 2, 0), ("query_activation", 3, 0), ("key_wide_stores", 2, 0),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value", "part"), DAMAGE)
def test_a_plan_that_reaches_past_its_operands_is_refused(
    field: str, value: int, part: int
) -> None:
    case = CASES["m"]
    data = plan_bytes(plan_of(case, grad_inputs(case), grad_outputs(case)))
    assert from_bytes(reseal(data)).kernel == "slot_select_grad"
    with pytest.raises(PlanError):
        from_bytes(changed(data, field, value, part))


@pytest.mark.parametrize("field", ["query_count", "query_wide_stores"])
def test_a_side_that_is_not_there_has_no_sizes(field: str) -> None:
    case = CASES["m only keys"]
    data = plan_bytes(plan_of(case, grad_inputs(case), grad_outputs(case)))
    from_bytes(reseal(data))
    with pytest.raises(PlanError, match=rf"{field}: expected 0\.\.0, got 1"):
        from_bytes(changed(data, field, 1))
