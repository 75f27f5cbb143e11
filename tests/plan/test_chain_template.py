"""Chains bound from a template: the same results and checks as recording the plans again."""

from __future__ import annotations

import re

import pytest
import torch
from plan_cases import chain_operands, chain_plans

from sdm_runtime import PlanError, StepChain
from sdm_runtime.plan.template import ChainTemplate


def without_kpay():
    return {name: tensor for name, tensor in chain_operands().items() if name != "kpay"}


@pytest.fixture
def template():
    plans = chain_plans(chain_operands())
    return ChainTemplate(StepChain(plans, plans[0].steps))  # of tensors that are gone


def copies(operands):
    return {name: tensor.clone() for name, tensor in operands.items()}


def test_a_bound_chain_does_what_its_plans_do(template):
    start = without_kpay()
    recorded, bound = copies(start), copies(start)
    plans = chain_plans(recorded | {"kpay": chain_operands()["kpay"]})
    StepChain(plans, plans[0].steps).run()
    chain = template.bind(bound)
    assert (chain.backend, chain.steps, chain.launches) == ("host", plans[0].steps, chain.steps * 4)
    assert chain.device == torch.device("cpu")
    assert not chain.has_library_step
    chain.run()
    for name in start:
        assert torch.equal(bound[name], recorded[name]), name
    assert not all(torch.equal(bound[name], start[name]) for name in start)


def test_its_plans_are_those_of_the_template(template):
    operands = without_kpay()
    chain = template.bind(operands)
    wanted = chain_plans(operands | {"kpay": chain_operands()["kpay"]})
    assert [plan.kernel for plan in chain.plans] == [plan.kernel for plan in wanted]
    for given, plan in zip(chain.plans, wanted, strict=True):
        assert torch.equal(given.tensor, plan.tensor)
        assert dict(given.tensors) == dict(plan.tensors)
        assert given.bound


WRONG = [
    ("x", lambda t: t[..., :-1].contiguous(), PlanError, "[gx_gemm] bind x: expected"),
    ("x", torch.Tensor.double, PlanError, "[gx_gemm] bind x: expected float32"),
    ("rec", lambda t: t.to("meta"), ValueError, "[chain] bind rec: expected a tensor on cpu"),
    ("gy", lambda t: t.to_sparse(), TypeError, "[chain] bind gy: expected a dense tensor"),
    ("gy", lambda t: t.tolist(), TypeError, "[chain] bind gy: expected a torch.Tensor, got list"),
    ("gy", None, PlanError, "bind gy: expected a tensor, got nothing"),
]


@pytest.mark.parametrize(("name", "change", "error", "message"), WRONG)
def test_what_does_not_fit_is_refused(template, name, change, error, message):
    operands = without_kpay()
    if change is None:
        del operands[name]
    else:
        operands[name] = change(operands[name])
    with pytest.raises(error, match=re.escape(message)):
        template.bind(operands)


def test_memory_that_overlaps_is_refused(template):
    operands = without_kpay()
    operands["out_g"] = operands["out_eff"].view_as(operands["out_g"])
    with pytest.raises(PlanError, match="expected memory that does not overlap"):
        template.bind(operands)


def test_a_name_of_no_plan_is_refused(template):
    with pytest.raises(PlanError, match=r"\[chain\] bind: no plan has an operand 'more'"):
        template.bind(without_kpay() | {"more": torch.zeros(1)})


def test_an_argument_that_no_launch_reads_is_taken(template):
    operands = chain_operands()
    template.bind(operands).run()
    with pytest.raises(PlanError, match="bind kpay: expected contiguous int32 of"):
        template.bind(operands | {"kpay": operands["kpay"][:-1].clone()})


def test_the_dict_stays_the_callers(template):
    operands = without_kpay()
    chain = template.bind(operands)
    operands["more"] = operands.pop("gy")
    chain.run()
    assert "gy" in chain.plans[-1].tensors


def test_replaced_memory_is_noticed(template):
    operands = without_kpay()
    chain = template.bind(operands)
    operands["gy"].data = operands["gy"].clone()
    for use in (chain.run, lambda: chain.plans):
        with pytest.raises(PlanError, match=r"\[chain\] gy: expected the memory"):
            use()
