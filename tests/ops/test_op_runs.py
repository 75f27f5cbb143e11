"""What runs: the same bits each time, few operations a step, nothing that waits for a device."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from op_cases import Case, call, make_inputs, run
from torch.utils._python_dispatch import TorchDispatchMode

import sdm_runtime
from sdm_runtime.ops import backward, backward_terms, chain_operands, chunk_kernels
from sdm_runtime.ops.call import Call
from sdm_runtime.ops.forward import run_forward
from sdm_runtime.ops.geometry import Geometry
from sdm_runtime.ops.quant import snapshot_format
from sdm_runtime.ops.staging import Inputs

CASE = Case(P=3, T=70, S=10, W=6, R=6, hd=36, repeats=True, gate_per_write=True)


def _bits(outcome):
    return [outcome.readings, outcome.advanced, *outcome.grads.values()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_repeats_and_thread_counts_give_the_same_bits(dtype):
    case = CASE.but(dtype=dtype)
    wanted = _bits(run(case))
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            for given, first in zip(_bits(run(case)), wanted, strict=True):
                assert torch.equal(given, first)
    finally:
        torch.set_num_threads(threads)
    # The control: other chunks order the sums otherwise.
    other = _bits(run(case.but(C=32)))
    assert not any(torch.equal(x, y) for x, y in zip(other, wanted, strict=True))


def test_last_dispatch():
    inputs = make_inputs(CASE)
    call(CASE, inputs)
    forward = sdm_runtime.last_dispatch()
    assert (forward["op"], forward["route"]) == ("sdm_write_read.forward", "loop")
    assert forward["launches"] == 0
    run(CASE)
    backward = sdm_runtime.last_dispatch()
    assert backward["op"] == "sdm_write_read.backward"
    assert (backward["route"], backward["backend"]) == ("chain", "host")
    assert (backward["gemm"], backward["gemm_reason"]) == (
        "gx_gemm",
        "the host chain has no BLAS step",
    )
    assert backward["pdl"] is False
    assert backward["launches"] == 4 * 5
    assert backward["plan_us"] > 0
    sizes = {"P": 3, "T": 70, "C": 16, "W": 6, "R": 6, "hd": 36, "steps": 5, "snapshot": "none"}
    assert backward["geometry"] == sizes
    run(CASE, gemm="fixed")
    assert sdm_runtime.last_dispatch()["gemm_reason"] == "asked for"


def test_auto_is_fixed_on_the_cpu():
    for given, wanted in zip(_bits(run(CASE, gemm="fixed")), _bits(run(CASE)), strict=True):
        assert torch.equal(given, wanted)


class _Calls(TorchDispatchMode):
    """Operations that launch something on a device (views and allocations do not)."""

    FREE = ("select", "slice", "view", "unbind", "detach", "empty", "expand", "alias")
    FREE += ("new_empty", "permute", "transpose", "unsqueeze")

    def __init__(self):
        super().__init__()
        self.count = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if not name.startswith(self.FREE):
            self.count[name] += 1
        return func(*args, **(kwargs or {}))


def _on_meta(case):
    """The inputs as tensors without data: an operation that reads a value back raises."""
    inputs = {k: x.to("meta") for k, x in make_inputs(case).items()}
    memory = inputs.pop("memory")
    geometry = Geometry(case.P, case.T, case.C, case.W, case.R, case.hd, memory.shape[0])
    return memory, Inputs(**inputs), geometry


@pytest.fixture
def launches(monkeypatch):
    """Stand in for the chunk kernels, which take no tensors without data; the names launched."""
    names = []
    monkeypatch.setattr(chunk_kernels, "_launch", lambda kernel, *_: names.append(kernel.__name__))
    return names


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 7), (torch.bfloat16, 8)])
@pytest.mark.parametrize("keep", [True, False])
def test_the_forward_waits_for_nothing_and_takes_few_calls_a_step(dtype, most, keep, launches):
    counts = []
    for steps in (10, 20):
        case = Case(T=16 * steps, dtype=dtype)
        memory, inputs, geometry = _on_meta(case)
        form = snapshot_format("none", dtype, case.hd) if keep else None
        with torch.no_grad(), _Calls() as calls:
            run_forward(memory, inputs, geometry, form)
        counts.append(calls.count)
    assert sum((counts[1] - counts[0]).values()) == 10 * most


def test_reading_a_value_back_would_be_noticed():
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.ones(3, device="meta").sum().item()


@pytest.mark.parametrize("quant", ["none", "fp8", "int4"])
def test_the_backward_waits_for_nothing_and_takes_few_calls_outside_its_chain(quant, launches):
    case = Case(T=64, dtype=torch.bfloat16, hd=130)
    memory, inputs, geometry = _on_meta(case)
    form = snapshot_format(quant, case.dtype, case.hd)
    gy = torch.empty(case.P, case.T, case.hd, device="meta")
    with torch.no_grad():
        _, saved = run_forward(memory, inputs, geometry, form)
        launches.clear()
        call_ = Call(geometry, form, grad_bank_fp32=False, gemm="auto")
        operands = chain_operands.allocate_operands(memory, saved, call_, 2)
        planes = (operands.dpd, operands.out_eff, operands.out_g, operands.dq)
        dots = chunk_kernels.RowDots(*(x[0].view(geometry.chunks, -1) for x in planes))
        out = backward.allocate_gradients(backward.forms_of(inputs), geometry, memory.device)
        (segment,) = geometry.segments(cuda=False)
        with _Calls() as calls:
            chain_operands.fill_operands(operands, saved, gy, geometry)
            backward_terms.segment_gradients(segment, dots, operands, saved, geometry, out)
    assert launches == ["chunk_gradients", "token_gradients"]
    assert sum(calls.count.values()) <= 4, calls.count


def test_a_call_of_another_thread_is_its_own():
    # Two calls at once on their own banks: neither shows in the other.
    wanted = [_bits(run(CASE.but(seed=s))) for s in range(4)]
    with ThreadPoolExecutor(4) as pool:
        given = list(pool.map(lambda s: _bits(run(CASE.but(seed=s))), range(4)))
    for many, first in zip(given, wanted, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(many, first, strict=True))
