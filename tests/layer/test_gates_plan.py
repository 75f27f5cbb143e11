"""The gates as plans: recorded, saved, bound to other tensors; damaged ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gate_cases import BF16, F32, Sizes, gate_inputs, run_with_gradients, upstream
from layer_plans import with_fields
from plan_cases import from_bytes
from torch import Tensor

from sdm_runtime import Plan, PlanError, StepChain, _core
from sdm_runtime.layer.gates import plan_token_gates, token_gates
from sdm_runtime.tensor.refs import operand_refs

SIZES = Sizes(2, 37, 3)
NAMES = ("gate_a", "gate_b", "A_log", "dt_bias", "beta", "g")


def outputs(sizes: Sizes = SIZES) -> tuple[Tensor, Tensor]:
    shape = (sizes.batches * sizes.heads, sizes.tokens, 1)
    return torch.full(shape, torch.nan), torch.full(shape, torch.nan)


@pytest.mark.parametrize("projected", [F32, BF16])
def test_recorded_saved_loaded_rebound(projected: torch.dtype, tmp_path: Path) -> None:
    first, second = (gate_inputs(SIZES, projected, seed=seed) for seed in (0, 1))
    out, other = outputs(), outputs()
    plan = plan_token_gates(*first, *out)
    assert [operand.name for operand in plan.operands] == list(NAMES)
    StepChain([plan], 1).run()
    for given, wanted in zip(out, token_gates(*first), strict=True):
        assert torch.equal(given, wanted)
    plan.save(tmp_path / "gates.plan")
    loaded = Plan.load(tmp_path / "gates.plan")
    bound = loaded.bind(**dict(zip(NAMES, (*second, *other), strict=True)))
    StepChain([bound], 1).run()
    for given, wanted, before in zip(other, token_gates(*second), out, strict=True):
        assert torch.equal(given, wanted)
        assert not torch.equal(given, before)


def test_tokens_that_lie_apart_are_an_operand_of_one_dimension() -> None:
    a, b, a_log, dt_bias = gate_inputs(SIZES, gap=4)
    out = outputs()
    plan = plan_token_gates(a, b, a_log, dt_bias, *out)
    assert plan.tensors["gate_a"].shape == (7 * (2 * 37 - 1) + 3,)
    StepChain([plan], 1).run()
    assert torch.equal(out[1], token_gates(a, b, a_log, dt_bias)[1])
    # Bound anew to its own tensors.
    again = plan.bind(**plan.tensors)
    out[1].fill_(torch.nan)
    StepChain([again], 1).run()
    assert torch.equal(out[1], token_gates(a, b, a_log, dt_bias)[1])


def test_no_tokens_are_an_empty_plan() -> None:
    sizes = Sizes(2, 0, 3)
    plan = plan_token_gates(*gate_inputs(sizes), *outputs(sizes))
    StepChain([plan], 1).run()


def grad_plan(sizes: Sizes = SIZES) -> tuple[Plan, dict[str, Tensor]]:
    a, b, a_log, dt_bias = gate_inputs(sizes)
    d_beta, d_g = upstream(sizes)
    operands = {"d_beta": d_beta, "d_g": d_g, "gate_a": a, "gate_b": b}
    operands |= {"A_log": a_log, "dt_bias": dt_bias}
    operands |= {"d_gate_a": a.clone(), "d_gate_b": b.clone()}
    operands |= {"d_A_log": a_log.clone(), "d_dt_bias": dt_bias.clone()}
    bound = _core.plan_token_gates_grad(operand_refs(operands))
    return Plan._recorded(bound, operands), operands


def test_the_gradients_as_a_plan() -> None:
    plan, operands = grad_plan()
    StepChain([plan], 1).run()
    wanted = run_with_gradients(token_gates, gate_inputs(SIZES), SIZES)[2:]
    for name, grad in zip(("gate_a", "gate_b", "A_log", "dt_bias"), wanted, strict=True):
        assert torch.equal(operands[f"d_{name}"], grad)


DAMAGE = [
    ({"num_batches": -1}, "num_batches"),
    ({"num_batches": 3}, "a: expected at least"),
    ({"num_tokens": 38}, "a: expected at least"),
    ({"num_tokens": 2**31 - 1}, "num_tokens"),
    ({"num_heads": 0}, "num_heads"),
    ({"num_heads": 4}, "a: expected at least"),
    ({"a_batch_stride": -1}, "a_batch_stride"),
    ({"a_batch_stride": 37 * 3 + 1}, "a: expected at least"),
    ({"b_token_stride": 4}, "b: expected at least"),
    ({"b_token_stride": 2**63 - 1}, "b: expected at least"),
    ({"a_type": 3}, "a_type: expected a row format"),
    ({"b_type": 0}, "b_type: expected a row format"),
    ({"a_log_type": 4}, "a_log_type: expected a row format"),
    ({"dt_bias_type": -1}, "dt_bias_type: expected a row format"),
    ({"num_batches": 1, "a_batch_stride": 0, "num_heads": 6, "num_tokens": 1}, "a_log: expected"),
]


@pytest.mark.parametrize(("changes", "message"), DAMAGE)
@pytest.mark.parametrize("backward", [False, True])
def test_damaged_numbers_are_refused(backward: bool, changes: dict, message: str) -> None:
    plan = plan_token_gates(*gate_inputs(SIZES), *outputs())
    if backward:
        plan, _ = grad_plan()
        if "a: expected at least" in message and "a_batch_stride" not in changes:
            message = "expected at least"  # of d_beta, which is looked at before
    from_bytes(with_fields(plan, num_tokens=36))  # the control
    with pytest.raises(PlanError, match=message):
        from_bytes(with_fields(plan, **changes))


def test_wider_values_than_the_operand_holds_are_refused() -> None:
    plan = plan_token_gates(*gate_inputs(SIZES, BF16, BF16), *outputs())
    for field in ("a", "b", "a_log", "dt_bias"):
        with pytest.raises(PlanError, match=f"{field}: expected"):
            from_bytes(with_fields(plan, **{f"{field}_type": 1}))


def test_wrong_outputs_are_named() -> None:
    inputs, (beta, g) = gate_inputs(SIZES), outputs()
    with pytest.raises(ValueError, match=r"beta: expected float32 \[6, 37, 1\]"):
        plan_token_gates(*inputs, beta[:5], g)
    with pytest.raises(TypeError, match="g: expected float32"):
        plan_token_gates(*inputs, beta, g.bfloat16())
    with pytest.raises(ValueError, match="a token's values side by side"):
        plan_token_gates(inputs[0].transpose(0, 1).contiguous().transpose(0, 1)[..., :1].expand(
            -1, -1, 3), *inputs[1:], beta, g)  # fmt: skip
    with pytest.raises(PlanError, match="memory that does not overlap"):
        plan_token_gates(*inputs, beta, beta.view(6, 37, 1))
