"""Chains bound from a template: the same results and checks as recording the plans again."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from kernel_cases import pa2_case
from plan_cases import (
    SHAPE,
    chain_operands,
    chain_plans,
    edited,
    forward_operands,
    forward_plans,
    from_bytes,
    plan_bytes,
    records,
    without,
)

from sdm_runtime import Plan, PlanError, StepChain, kernels
from sdm_runtime.format.plan_format import PatchRecord
from sdm_runtime.layer.readings import plan_merge_readings
from sdm_runtime.plan.template import ChainLength, ChainTemplate


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


# Lengths: a template's chain of another number of steps or tokens.
LENGTHS = [
    replace(SHAPE, steps=steps, padding=padding)
    for steps, padding in ((3, 1), (1, 0), (1, 3), (7, 2), (50, 0), (3, 1), (2, 3))
]
FORMS = {
    "rows of a slice": {},
    "rows of two slices": {"hd": 132},
    "fp8 snapshots": {"types": ("bf16", "e4m3", "f32")},
    "snapshots of few rows": {"slots": 5, "few_rows": True},
    "float32": {"types": ("f32", "f32", "f32"), "sequences": 3, "writes": 5},
}


def length_of(shape):
    return ChainLength(shape.steps, shape.tokens)


def passes(shape):
    """Operands and recorded chains of the backward and of the forward."""
    back, ahead = chain_operands(shape), forward_operands(shape)
    yield without(back, "kpay"), StepChain(chain_plans(back, shape), shape.steps)
    # Delta, which the forward's kernels have by two names, by its own.
    ahead |= {"delta": ahead["d_u"].view(-1, shape.hd), "d_dv": ahead["residual"]}
    yield ahead, StepChain(forward_plans(ahead, shape), shape.steps, order="ascending")


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_another_length_gives_the_plans_that_would_be_recorded(form):
    templates = [
        ChainTemplate(chain, length_of(SHAPE)) for _, chain in passes(replace(SHAPE, **form))
    ]
    for length in LENGTHS:
        shape = replace(length, **form)
        for template, (operands, recorded) in zip(templates, passes(shape), strict=True):
            chain = template.bind(operands, length_of(shape))
            assert (chain.steps, chain.order) == (recorded.steps, recorded.order)
            for given, wanted in zip(chain.plans, recorded.plans, strict=True):
                assert torch.equal(given.tensor, wanted.tensor), wanted
                assert Plan.from_tensor(given.tensor).steps == shape.steps  # it passes as a file


def test_another_length_gives_the_bits_of_a_recording(template_of_lengths):
    for shape in LENGTHS:
        start = without(chain_operands(shape), "kpay")
        recorded, bound = copies(start), copies(start)
        StepChain(
            chain_plans(recorded | {"kpay": start["rec"][..., 0].contiguous()}, shape), shape.steps
        ).run()
        template_of_lengths.bind(bound, length_of(shape)).run()
        for name in start:
            assert torch.equal(bound[name], recorded[name]), name


@pytest.fixture
def template_of_lengths():
    return ChainTemplate(StepChain(chain_plans(chain_operands()), SHAPE.steps), length_of(SHAPE))


LONGER = replace(SHAPE, steps=5)
WRONG_LENGTHS = [
    (ChainLength(4, 15), PlanError, "[gx_gwr] bind delta: expected 4608 bytes, got 5760 bytes"),
    (ChainLength(6, 23), PlanError, "[gx_gwr] bind delta: expected 6912 bytes, got 5760 bytes"),
    (
        ChainLength(5, 16),
        ValueError,
        "[gx_gwr] num_tokens: expected 17..20 for 5 steps of 4, got 16",
    ),
    (
        ChainLength(5, 21),
        ValueError,
        "[gx_gwr] num_tokens: expected 17..20 for 5 steps of 4, got 21",
    ),
    (ChainLength(5, -(1 << 60)), ValueError, "[gx_gwr] num_tokens: expected 17..20"),
    (
        ChainLength(0, 0),
        PlanError,
        "[gx_gwr] bind: expected 3 steps, got 0: a plan covers 1..2^31-1",
    ),
    (ChainLength(1 << 31, 1 << 33), PlanError, "a plan covers 1..2^31-1"),
    (ChainLength((1 << 31) - 1, (1 << 33) - 5), ValueError, "expected fewer than 2^31 chunks"),
    (ChainLength(1 << 29, (1 << 31) - 1), PlanError, "[gx_gwr] bind delta: expected"),
    (None, ValueError, "[chain] bind length: expected ChainLength("),
]


@pytest.mark.parametrize(("length", "error", "message"), WRONG_LENGTHS, ids=str)
def test_a_length_that_does_not_fit_is_refused(template_of_lengths, length, error, message):
    operands = without(chain_operands(LONGER), "kpay")
    with pytest.raises(error, match=re.escape(message)):
        template_of_lengths.bind(operands, length)
    template_of_lengths.bind(operands, length_of(LONGER)).run()  # nothing has changed


def test_a_template_without_a_length_has_no_other(template):
    with pytest.raises(
        ValueError, match=re.escape("[chain] bind length: expected None, got Chain")
    ):
        template.bind(without_kpay(), length_of(SHAPE))


@pytest.mark.parametrize(
    "change",
    [
        {"snap": lambda x: x[:-1].clone()},
        {"bpre": lambda x: torch.cat((x, x[:1]))},
        {"dq": lambda x: x[:, :-1].clone()},
        {"grad": lambda x: x[:-1].clone()},
    ],
    ids=str,
)
def test_operands_of_another_length_are_refused(template_of_lengths, change):
    operands = without(chain_operands(LONGER), "kpay")
    for name, cut in change.items():
        operands[name] = cut(operands[name])
        with pytest.raises(PlanError, match=rf"bind {name}: expected \d+ bytes"):
            template_of_lengths.bind(operands, length_of(LONGER))


def test_snapshots_by_entry_have_one_length():
    """Their steps are apart, by a stride that no number of tokens tells."""
    shape = replace(SHAPE, per_entry=True)
    tensors, sizes = pa2_case(shape)
    plan = kernels.plan_gx_pa2(**tensors, **sizes, steps=shape.steps)
    template = ChainTemplate(StepChain([plan], shape.steps), length_of(shape))
    template.bind(tensors, length_of(shape))
    with pytest.raises(PlanError, match="expected 3 steps, got 2: of 'snap', steps have shares"):
        template.bind(tensors, ChainLength(2, 7))


def test_a_plan_of_some_of_its_operands_steps_becomes_one_of_all():
    operands = chain_operands(LONGER)
    plans = chain_plans(operands, replace(LONGER, steps=2, padding=-11))
    template = ChainTemplate(StepChain(plans, 2), ChainLength(2, LONGER.tokens))
    given = template.bind(without(operands, "kpay"), length_of(LONGER)).plans
    for plan, wanted in zip(given, chain_plans(operands, LONGER), strict=True):
        assert torch.equal(plan.tensor, wanted.tensor)


def test_other_kernels_have_one_length():
    plan = plan_merge_readings(torch.randn(2, 3, 2, 8), torch.empty(2, 3, 16))
    template = ChainTemplate(StepChain([plan], 1, order="ascending"), ChainLength(1, 1))
    with pytest.raises(PlanError, match="plans of this kernel have one length"):
        template.bind(dict(plan.tensors), ChainLength(2, 2))


@pytest.mark.parametrize("member", ["base", "lowest", "highest"])
def test_an_edited_patch_has_one_length(member):
    data = plan_bytes(chain_plans(chain_operands())[1])
    [at] = [at for kind, at in records(data) if kind is PatchRecord]
    value = getattr(PatchRecord.unpack(data, at), member)
    edit = {"base": {"base": 1}, "lowest": {"lowest": 1}, "highest": {"highest": value - 1}}[member]
    plan = from_bytes(edited(data, PatchRecord, at, **edit))
    operands = {name: chain_operands()[name] for name in ("d_u", "x", "d_dv")}
    template = ChainTemplate(StepChain([plan.bind(**operands)], SHAPE.steps), length_of(SHAPE))
    with pytest.raises(PlanError, match="it patches some of its steps alike"):
        template.bind(operands, ChainLength(2, 7))


def test_threads_bind_lengths_of_one_template(template_of_lengths):
    wanted = {}
    for shape in LENGTHS:
        operands = without(chain_operands(shape), "kpay")
        ChainTemplate(StepChain(chain_plans(chain_operands(shape), shape), shape.steps)).bind(
            operands
        ).run()
        wanted[length_of(shape)] = operands
    starts = {length_of(shape): without(chain_operands(shape), "kpay") for shape in LENGTHS}

    def work(turn):
        for index in range(60):
            length = list(starts)[(index * (turn + 1)) % len(starts)]
            operands = copies(starts[length])
            template_of_lengths.bind(operands, length).run()
            assert all(torch.equal(operands[name], wanted[length][name]) for name in operands)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
