"""What runs: the same bits each time, no operation a step, nothing that waits for a device."""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from op_cases import Case, call, make_grad, make_inputs, run
from torch.utils._python_dispatch import TorchDispatchMode

import sdm_runtime
from sdm_runtime.kernels.steps import plan_step
from sdm_runtime.ops.backward import operands as chain_operands
from sdm_runtime.ops.backward import run as backward
from sdm_runtime.ops.backward import terms as backward_terms
from sdm_runtime.ops.call.call import Call
from sdm_runtime.ops.call.geometry import Geometry, Segment
from sdm_runtime.ops.call.quant import snapshot_format
from sdm_runtime.ops.call.staging import Inputs
from sdm_runtime.ops.chunks import chunk_kernels
from sdm_runtime.ops.forward import run as forward
from sdm_runtime.ops.forward.chain import StepsDone
from sdm_runtime.ops.forward.run import run_forward
from sdm_runtime.ops.routes import bound_chains, step_chain

CASE = Case(P=3, T=70, S=10, W=6, R=6, hd=36, repeats=True, gate_per_write=True)


def _bits(outcome):
    return [outcome.readings, outcome.advanced, *outcome.grads.values()]


# The CPU's library would cut among threads: one chunk's products, and any long chunk's system.
_SIZES = [
    {},
    {"P": 1, "T": 20, "C": 32},
    {"P": 1, "T": 17, "C": 32, "hd": 1100},
    {"T": 150, "C": 100},
]


@pytest.mark.parametrize("sizes", _SIZES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_repeats_and_thread_counts_give_the_same_bits(dtype, sizes):
    case = CASE.but(dtype=dtype, **sizes)
    wanted = _bits(run(case))
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3, 16, 64):
            torch.set_num_threads(count)
            for given, first in zip(_bits(run(case)), wanted, strict=True):
                assert torch.equal(given, first)
    finally:
        torch.set_num_threads(threads)
    # The control: other chunks order the sums otherwise.
    other = _bits(run(case.but(C=16 if sizes else 32)))
    assert not any(torch.equal(x, y) for x, y in zip(other, wanted, strict=True))


def test_last_dispatch_says_what_ran():
    inputs = make_inputs(CASE)
    call(CASE, inputs)
    before = sdm_runtime.last_dispatch()
    assert (before["op"], before["route"]) == ("sdm_write_read.forward", "chain")
    assert (before["backend"], before["gemm"]) == ("host", "gx_gemm")
    assert before["launches"] == 3 * 5
    assert before["plan_us"] > 0
    run(CASE)
    after = sdm_runtime.last_dispatch()
    assert after["op"] == "sdm_write_read.backward"
    assert (after["route"], after["backend"]) == ("chain", "host")
    assert (after["gemm"], after["gemm_reason"]) == (
        "gx_gemm",
        "the host chain has no BLAS step",
    )
    assert after["pdl"] is False
    assert after["launches"] == 4 * 5
    assert after["plan_us"] > 0
    sizes = {"P": 3, "T": 70, "C": 16, "W": 6, "R": 6, "hd": 36, "steps": 5, "snapshot": "none"}
    assert after["geometry"] == before["geometry"] == sizes
    run(CASE, gemm="fixed")
    assert sdm_runtime.last_dispatch()["gemm_reason"] == "asked for"


def test_auto_is_fixed_on_the_cpu():
    for given, wanted in zip(_bits(run(CASE, gemm="fixed")), _bits(run(CASE)), strict=True):
        assert torch.equal(given, wanted)


class _Calls(TorchDispatchMode):
    """Operations that launch something on a device (views and allocations do not)."""

    FREE: tuple[str, ...] = ("select", "slice", "view", "unbind", "detach", "empty", "expand")
    FREE += ("alias", "as_strided", "new_empty", "permute", "transpose", "unsqueeze")

    def __init__(self):
        super().__init__()
        self.count: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if not name.startswith(self.FREE):
            self.count[name] += 1
        return func(*args, **(kwargs or {}))


def _on_meta(case, quant="none"):
    """The inputs as tensors without data: an operation that reads a value back raises."""
    inputs = {k: x.to("meta") for k, x in make_inputs(case).items()}
    memory = inputs.pop("memory")
    geometry = Geometry(case.P, case.T, case.C, case.W, case.R, case.hd, memory.shape[0])
    form = snapshot_format(quant, case.dtype, case.hd)
    return memory, Inputs(**inputs), Call(geometry, form, grad_bank_fp32=False, gemm="auto")


@pytest.fixture
def launches(monkeypatch):
    """Stand in for the kernels, which take no tensors without data; the names launched."""
    names = []

    def steps(*_):
        names.append("chain")
        return StepsDone({}, ())

    monkeypatch.setattr(chunk_kernels, "_launch", lambda kernel, *_: names.append(kernel.__name__))
    monkeypatch.setattr(forward, "run_steps", steps)
    return names


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("quant", ["none", "fp8"])
@pytest.mark.parametrize("keep", [True, False])
def test_the_forward_waits_for_nothing_and_takes_no_call_a_step(dtype, quant, keep, launches):
    counts = []
    for steps in (10, 20):
        case = Case(T=16 * steps, dtype=dtype)
        memory, inputs, call_ = _on_meta(case, quant)
        with torch.no_grad(), _Calls() as calls:
            run_forward(memory, inputs, call_, keep=keep)
        counts.append(calls.count)
    ahead = ["event_order", "chunk_prepare", "pair_matrices", "chunk_inverse"]
    assert launches == [*ahead, "chain", "chunk_readings"] * 2
    assert counts[0] == counts[1]
    assert 0 < sum(counts[0].values()) < 60


def test_reading_a_value_back_would_be_noticed():
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.ones(3, device="meta").sum().item()


@pytest.mark.parametrize("quant", ["none", "fp8", "int4"])
def test_the_backward_waits_for_nothing_and_takes_few_calls_outside_its_chain(
    quant, launches, monkeypatch
):
    case = Case(T=64, dtype=torch.bfloat16, hd=130)
    memory, inputs, call_ = _on_meta(case, quant)
    geometry = call_.geometry
    gy = torch.empty(case.P, case.T, case.hd, device="meta")
    with torch.no_grad():
        _, saved = run_forward(memory, inputs, call_, keep=True)
        launches.clear()
        operands = chain_operands.allocate_operands(memory, saved, call_)
        forms = backward.forms_of(inputs)
        out = backward.allocate_gradients(forms, geometry, memory.device)
        room = backward_terms.TermsRoom(operands, geometry, forms.gates)
        planes = lambda *_: launches.append("sum_planes")  # noqa: E731
        monkeypatch.setattr(backward_terms, "sum_planes", planes)
        with _Calls() as calls:
            chain_operands.fill_operands(operands, saved, gy, geometry)
            backward_terms.input_gradients(operands, saved, geometry, out, room)
    assert launches == ["sum_planes", "token_gradients", "chunk_gradients"]
    assert sum(calls.count.values()) <= 5, calls.count


@pytest.fixture
def recorded(monkeypatch):
    """No templates to begin with; the names of the kernels whose plans are recorded."""
    monkeypatch.setattr(bound_chains, "_templates", {})
    names, plan = [], plan_step

    def count(kernel, given):
        names.append(kernel)
        return plan(kernel, given)

    monkeypatch.setattr(step_chain, "plan_step", count)
    return names


FORWARD = ["fx_read", "gx_gemm", "fx_write"]  # on the CPU in two chains
BACKWARD = ["gx_gwr", "gx_gemm", "gx_pa2", "gx_gds"]


def test_a_kind_of_call_is_recorded_once(recorded):
    first, others = _bits(run(CASE)), _bits(run(CASE.but(seed=1)))
    assert recorded == FORWARD + BACKWARD
    for given, wanted in zip(_bits(run(CASE)), first, strict=True):
        assert torch.equal(given, wanted)
    assert not torch.equal(others[0], first[0])  # each on its own tensors
    for case in (CASE.but(C=32), CASE.but(dtype=torch.bfloat16)):
        recorded.clear()
        run(case)
        assert len(recorded) == 7


@pytest.mark.parametrize("quant", ["none", "fp8"])
@pytest.mark.parametrize("hd", [36, 132])
def test_a_hundred_lengths_are_of_one_kind(monkeypatch, recorded, hd, quant):
    case = CASE.but(P=2, hd=hd, options={"snapshot_quant": quant})
    lengths = [16 + (37 * i) % 100 for i in range(100)]
    given = [_bits(run(case.but(T=t))) for t in lengths]
    assert recorded == FORWARD + BACKWARD
    for t, outcome in zip(lengths[::9], given[::9], strict=True):
        monkeypatch.setattr(bound_chains, "_templates", {})
        recorded.clear()
        for x, fresh in zip(outcome, _bits(run(case.but(T=t))), strict=True):
            assert torch.equal(x, fresh), t
        assert len(recorded) == 7


def test_segments_of_several_lengths_are_of_one_kind(monkeypatch, recorded):
    case = CASE.but(T=16 * 7)
    wanted = _bits(run(case))
    recorded.clear()
    monkeypatch.setattr(bound_chains, "_templates", {})
    monkeypatch.setattr(Geometry, "segments", _segments_of_three)
    for _ in range(2):
        for x, whole in zip(_bits(run(case)), wanted, strict=True):
            assert torch.equal(x, whole)
    assert recorded == FORWARD + BACKWARD


def _segments_of_three(sizes, *, cuda):
    for first in range(0, sizes.steps, 3):
        yield Segment(first, min(first + 3, sizes.steps))


def test_threads_have_calls_of_many_lengths(recorded):
    cases = [CASE.but(T=t, seed=t) for t in range(16, 56)]
    wanted = [_bits(run(case)) for case in cases]
    with ThreadPoolExecutor(4) as pool:
        given = list(pool.map(lambda case: _bits(run(case)), cases * 3))
    for outcome, first in zip(given, wanted * 3, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(outcome, first, strict=True))
    assert recorded == FORWARD + BACKWARD


def test_the_kind_that_was_not_used_longest_is_forgotten(monkeypatch, recorded):
    """Chunk sizes are kinds of their own: on the CPU three chains each."""
    monkeypatch.setattr(bound_chains, "_MOST_TEMPLATES", 9)
    often, seldom = CASE.but(C=16), CASE.but(C=17)
    for case in (often, seldom, often, CASE.but(C=18), often, CASE.but(C=19)):
        run(case)
    recorded.clear()
    run(often)
    assert recorded == []
    run(seldom)
    assert recorded == FORWARD + BACKWARD


def test_addresses_off_a_boundary_have_plans_of_their_own(recorded):
    wanted = run(CASE)
    inputs = make_inputs(CASE)
    rows = inputs["memory"]
    for shift, plans in ((1, 7), (1, 7), (0, 0)):  # in elements of 4 bytes
        recorded.clear()
        memory = torch.empty(rows.numel() + shift)[shift:].view_as(rows).copy_(rows)
        v = inputs["v"].clone().requires_grad_()
        readings = call(CASE, inputs | {"memory": memory, "v": v})
        readings.backward(make_grad(CASE))
        assert torch.equal(readings, wanted.readings)
        assert torch.equal(v.grad, wanted.grads["v"])
        assert len(recorded) == plans, shift


def test_many_threads_may_have_calls_of_new_kinds(monkeypatch):
    templates: dict[Any, Any] = {}
    monkeypatch.setattr(bound_chains, "_templates", templates)
    template: Any = object()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            keys = ((thread, kind) for kind in range(5000) for thread in range(4))
            keep = lambda key: bound_chains._keep(key, template)  # noqa: E731
            list(pool.map(keep, keys, chunksize=5000))
    finally:
        sys.setswitchinterval(interval)
    assert len(templates) == bound_chains._MOST_TEMPLATES


def test_a_call_of_another_thread_is_its_own():
    # Two calls at once on their own banks: neither shows in the other.
    wanted = [_bits(run(CASE.but(seed=s))) for s in range(4)]
    with ThreadPoolExecutor(4) as pool:
        given = list(pool.map(lambda s: _bits(run(CASE.but(seed=s))), range(4)))
    for many, first in zip(given, wanted, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(many, first, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("quant", ["none", "bf16", "fp8", "int4"])
def test_the_backward_says_how_its_snapshots_are_stored(monkeypatch, quant, dtype):
    """Not left to the tensor's dtype and shape: bytes could be codes of several formats."""
    given, plan = [], plan_step

    def spied(kernel, arguments):
        if kernel == "gx_pa2":
            given.append(arguments["snap_format"])
        return plan(kernel, arguments)

    monkeypatch.setattr(step_chain, "plan_step", spied)
    monkeypatch.setattr(bound_chains, "_templates", {})
    run(CASE.but(dtype=dtype, hd=14, options={"snapshot_quant": quant}))
    own = {torch.float32: "f32", torch.bfloat16: "bf16"}[dtype]
    assert given == [own if quant == "none" else quant]
