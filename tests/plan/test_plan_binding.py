"""Binding: every way in which operands can be wrong, one by one, and that all or none is bound."""

import pytest
import torch
from plan_cases import (
    SHAPE,
    chain_operands,
    chain_plans,
    edited,
    find_reloc,
    from_bytes,
    plan_bytes,
    sample_chain,
    without,
)

from sdm_runtime import PlanError, StepChain
from sdm_runtime.format.plan_format import RelocRecord
from sdm_runtime.plan.plan import Plan

N, C, HD = SHAPE.chunks, SHAPE.chunk, SHAPE.hd


@pytest.fixture
def gemm():
    """An unbound gx_gemm plan and operands that fit it."""
    operands = chain_operands()
    plan = chain_plans(operands)[1]
    fitting = {name: operands[name].clone() for name in ("d_u", "x", "d_dv")}
    return from_bytes(plan_bytes(plan)), fitting


def test_fitting_operands_bind(gemm):
    plan, operands = gemm
    bound = plan.bind(**operands)
    assert bound.bound
    assert not plan.bound
    assert dict(bound.tensors) == operands


def shifted(tensor, elements):
    """The same values at an address that is ``elements`` past an allocation's start."""
    room = torch.empty(tensor.numel() + elements, dtype=tensor.dtype)
    view = room[elements:].view(tensor.shape)
    return view.copy_(tensor)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda o: o.pop("x"), r"bind x: expected a tensor, got nothing"),
        (lambda o: o.update(y=o["x"]), r"bind 'y': expected one of d_u, x, d_dv, got that name"),
        (lambda o: o.update(x=o["x"].double()), r"bind x: expected float32, got float64"),
        (lambda o: o.update(x=o["x"].to(torch.int32)), r"expected float32, got int32"),
        (lambda o: o.update(x=o["x"][:-1].clone()), r"expected 384 bytes, got 320 bytes \(float32"),
        (lambda o: o.update(x=torch.zeros(N + 1, C, C)), r"expected 384 bytes, got 448 bytes"),
        (lambda o: o.update(x=o["x"].transpose(0, 1)), r"expected a contiguous tensor, got float"),
        (lambda o: o.update(d_dv=o["d_u"]), r"d_u and d_dv: expected memory that does not overlap"),
        (lambda o: o.update(x=o["d_u"].view(-1)[:96]), r"bind d_u and x: expected memory that"),
        (
            lambda o: o.update(x=torch.empty(N, C, C, device="meta")),
            r"bind x: expected a tensor on cpu or",
        ),
    ],
)
def test_operands_that_do_not_fit(gemm, change, reason):
    plan, operands = gemm
    change(operands)
    with pytest.raises(ValueError, match=reason):
        plan.bind(**operands)
    assert not plan.bound


@pytest.mark.parametrize("wrong", [None, 3, [1.0], "x"])
def test_operands_that_are_no_tensors(gemm, wrong):
    plan, operands = gemm
    with pytest.raises(TypeError, match=r"x: expected a torch.Tensor, got"):
        plan.bind(**{**operands, "x": wrong})


def test_a_dtype_that_no_kernel_takes(gemm):
    plan, operands = gemm
    with pytest.raises(
        TypeError, match=r"x: expected one of float32, bfloat16.*got torch.complex64"
    ):
        plan.bind(**{**operands, "x": operands["x"].to(torch.complex64)})


def test_another_shape_with_the_same_bytes_binds(gemm):
    """A plan knows bytes, not shapes: the launcher checked the shape when it was recorded."""
    plan, operands = gemm
    assert plan.bind(**{**operands, "x": operands["x"].view(C, N, C)}).bound


def test_overlap_is_found_at_the_last_byte_and_not_beyond(gemm):
    plan, operands = gemm
    size = operands["d_u"].numel()
    room = torch.zeros(2 * size + 96)
    d_u, behind = room[:size].view(N, C, HD), room[size : size + 96].view(N, C, C)
    assert plan.bind(**{**operands, "d_u": d_u, "x": behind}).bound
    overlapping = room[size - 1 : size + 95].view(N, C, C)
    with pytest.raises(PlanError, match="d_u and x: expected memory that does not overlap"):
        plan.bind(**{**operands, "d_u": d_u, "x": overlapping})


def test_operands_that_are_only_read_may_share_memory(gemm):
    plan, operands = gemm
    room = torch.zeros(N * C * HD)
    shared = {"x": room[:96].view(N, C, C), "d_dv": room.view(N, C, HD)}
    assert plan.bind(**{**operands, **shared}).bound


def test_alignment_is_checked_at_the_recorded_width(gemm):
    plan, operands = gemm
    data = plan_bytes(plan)
    wide = edited(data, RelocRecord, find_reloc(data, "x"), align_log2=4)
    with pytest.raises(PlanError, match="x: expected an address that is a multiple of 16, got one"):
        from_bytes(wide).bind(**{**operands, "x": shifted(operands["x"], 1)})
    assert from_bytes(wide).bind(**{**operands, "x": shifted(operands["x"], 4)}).bound
    assert plan.bind(**{**operands, "x": shifted(operands["x"], 1)}).bound  # recorded with 4


def test_records_need_sixteen_bytes():
    operands = chain_operands()
    plan = chain_plans(operands)[3]
    names = [operand.name for operand in plan.operands]
    fitting = {name: operands[name] for name in names}
    with pytest.raises(PlanError, match="qrec: expected an address that is a multiple of 16"):
        plan.bind(**{**fitting, "qrec": shifted(operands["qrec"], 1)})


def test_an_unbound_plan_and_chain_refuse_to_run(gemm, tmp_path):
    plan, operands = gemm
    with pytest.raises(PlanError, match=r"\[gx_gemm\] plan: expected a bound plan: call bind\(d_u"):
        StepChain([plan], SHAPE.steps).run()
    with pytest.raises(PlanError, match="expected a bound plan"):
        _ = StepChain([plan, plan.bind(**operands)], SHAPE.steps).launches
    chain, _ = sample_chain()
    chain.save(tmp_path / "chain")
    with pytest.raises(PlanError, match="expected a bound plan"):
        StepChain.load(tmp_path / "chain").run()


def test_a_chain_binds_by_name_and_refuses_unknown_ones(tmp_path):
    chain, operands = sample_chain()
    chain.save(tmp_path / "chain")
    loaded = StepChain.load(tmp_path / "chain")
    with pytest.raises(PlanError, match="got nope"):
        loaded.bind(**operands, nope=operands["x"])
    with pytest.raises(PlanError, match=r"\[gx_pa2\] bind rec: expected a tensor"):
        loaded.bind(**without(operands, "rec"))
    loaded.bind(**operands).run()


@pytest.fixture
def pa2():
    """An unbound gx_pa2 plan and operands that fit it, ``kpay`` among them."""
    operands = chain_operands()
    plan = chain_plans(operands)[2]
    names = [*(operand.name for operand in plan.operands), "kpay"]
    return plan, from_bytes(plan_bytes(plan)), {name: operands[name] for name in names}


def test_the_words_that_no_launch_reads_may_be_given(pa2):
    recorded, plan, operands = pa2
    bound = plan.bind(**operands)
    assert plan_bytes(bound) == plan_bytes(recorded)
    assert dict(bound.tensors) == without(operands, "kpay")  # not kept
    operands["kpay"].resize_(0)
    StepChain([bound], SHAPE.steps).run()
    assert plan.bind(**without(operands, "kpay")).bound


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (torch.Tensor.float, r"bind kpay: expected contiguous int32 of 288 bytes, got float32"),
        (lambda k: k[:, :-1].clone(), r"of 288 bytes, got int32 \[6, 11\]"),
        (lambda k: k[:-1].clone(), r"of 288 bytes, got int32 \[5, 12\]"),
        (lambda k: k.t(), r"expected contiguous int32 of 288 bytes, got int32 \[12, 6\]"),
    ],
)
def test_their_form_is_checked(pa2, change, reason):
    _, plan, operands = pa2
    with pytest.raises(PlanError, match=reason):
        plan.bind(**{**operands, "kpay": change(operands["kpay"])})
    chain = StepChain([plan], SHAPE.steps)
    with pytest.raises(PlanError, match=reason):
        chain.bind(**{**operands, "kpay": change(operands["kpay"])})


@pytest.mark.parametrize(
    ("rec", "error", "reason"),
    [
        (torch.Tensor.to_sparse, TypeError, r"bind rec: expected a dense tensor, got sparse_coo"),
        (lambda r: r[:, :-1].contiguous(), PlanError, r"bind rec: expected 1152 bytes"),
        (torch.Tensor.float, PlanError, r"bind rec: expected int32, got float32"),
        (lambda r: r.to("meta"), ValueError, r"bind rec: expected a tensor on cpu"),
    ],
)
def test_wrong_records_are_not_blamed_on_the_words(pa2, rec, error, reason):
    _, plan, operands = pa2
    with pytest.raises(error, match=reason):
        plan.bind(**{**operands, "rec": rec(operands["rec"])})


def test_words_that_are_none_are_refused(pa2):
    _, plan, operands = pa2
    with pytest.raises(TypeError, match=r"bind kpay: expected a torch.Tensor, got NoneType"):
        plan.bind(**{**operands, "kpay": None})


def test_plans_of_other_kernels_refuse_them():
    operands = chain_operands()
    gds = chain_plans(operands)[3]
    own = {operand.name: operands[operand.name] for operand in gds.operands}
    with pytest.raises(
        PlanError, match=r"\[gx_gds\] bind 'kpay': expected one of grad, .* that name"
    ):
        gds.bind(**own, kpay=operands["kpay"])
    with pytest.raises(PlanError, match="got kpay"):
        StepChain([gds], SHAPE.steps).bind(**own, kpay=operands["kpay"])


def test_a_chain_takes_every_argument_that_it_was_recorded_with():
    operands = chain_operands()
    chain = StepChain(chain_plans(operands), SHAPE.steps)
    fresh = {name: tensor.clone() for name, tensor in operands.items()}
    bound = chain.unbound().bind(**fresh)
    assert all("kpay" not in plan.tensors for plan in bound.plans)
    bound.run()
    chain.run()
    assert all(torch.equal(fresh[name], tensor) for name, tensor in operands.items())


def test_a_meta_tensor_is_never_recorded():
    """A launcher's own check comes first: nothing is bound, nothing recorded."""
    with pytest.raises(ValueError, match="expected a tensor on cpu or cuda"):
        chain_plans({k: v.to("meta") for k, v in chain_operands().items()})


def test_plans_come_from_recording_or_bytes(gemm):
    plan, _ = gemm
    assert isinstance(plan, Plan)
    assert plan.tensor.dtype == torch.uint8
    assert plan.tensor.is_contiguous()
    assert plan_bytes(from_bytes(plan_bytes(plan))) == plan_bytes(plan)
