"""Looking into this process: kernel times of a host chain, and where operands are."""

from types import SimpleNamespace

import inspect_cases as cases
import pytest
import torch
from plan_cases import ORDER, from_bytes, plan_bytes, sample_chain
from testing_plans import walk_plan

from sdm_runtime import PlanError, StepChain
from sdm_runtime.inspect import bindings, load_trace, trace
from sdm_runtime.inspect.captured.live import kernels_of
from sdm_runtime.inspect.reading.files import decode
from sdm_runtime.inspect.verify import verify
from sdm_runtime.inspect.verify.bindings import load_bindings


def test_a_host_chain_is_timed_launch_by_launch(tmp_path):
    chain, operands = sample_chain(cases.SHAPE)
    other, expected = sample_chain(cases.SHAPE)
    recorded = trace(chain, tmp_path / "trace.json")
    assert [kernel.name for kernel in recorded.kernels] == list(ORDER) * cases.SHAPE.steps
    assert recorded.source == "host"
    ends = [kernel.end_us for kernel in recorded.kernels]
    assert ends == sorted(ends)
    assert all(kernel.duration_us >= 0 for kernel in recorded.kernels)
    assert load_trace(tmp_path / "trace.json") == recorded
    other.run()  # the traced run computed what a run computes
    assert all(torch.equal(operands[n].view(torch.uint8), expected[n].view(torch.uint8))
               for n in operands)  # fmt: skip


def test_empty_grids_take_no_time():
    out = torch.zeros(4)
    plans = [walk_plan(out, empty=True, steps=3), walk_plan(out, steps=3)]
    assert [plan for plan, _, _ in StepChain(plans, 3).run_timed()] == [1, 1, 1]


def test_an_unbound_chain_is_not_traced():
    chain, _ = sample_chain(cases.SHAPE)
    unbound = StepChain([from_bytes(plan_bytes(plan)) for plan in chain.plans], chain.steps)
    with pytest.raises(PlanError, match="expected a bound plan"):
        trace(unbound)
    with pytest.raises(PlanError, match="expected a bound plan"):
        bindings(unbound)


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_a_function_needs_a_device():
    with pytest.raises(RuntimeError, match="expected a CUDA device for the profiler"):
        trace(lambda: None)


def event(name, start, end, device="CUDA", stream=7):
    return SimpleNamespace(
        name=name,
        time_range=SimpleNamespace(start=start, end=end),
        device_type=SimpleNamespace(name=device),
        device_resource_id=stream,
    )


def test_profiler_events_to_kernels():
    events = [
        event("gx_gwr_bf16", 10.0, 12.5),
        event("Memcpy DtoD", 1.0, 2.0),
        event("Memset (Device)", 2.0, 3.0),
        event("aten::mm", 0.0, 5.0, device="CPU"),
    ]
    (kernel,) = kernels_of(events)
    assert (kernel.name, kernel.start_us, kernel.duration_us, kernel.stream) == (
        "gx_gwr_bf16", 10.0, 2.5, 7)  # fmt: skip


def test_bindings_of_a_live_chain_pass_the_checks(tmp_path):
    chain, operands = sample_chain(cases.SHAPE)
    path = tmp_path / "bindings.json"
    bound = bindings(chain, path)
    assert set(bound) == set(operands)
    assert bound["x"]["address"] == operands["x"].data_ptr()
    model = decode(chain.to_bytes())
    assert verify(model, bindings=load_bindings(path)) == []


def test_a_tensor_that_lost_its_memory_is_found(tmp_path):
    chain, operands = sample_chain(cases.SHAPE)
    operands["x"].untyped_storage().resize_(0)
    bindings(chain, tmp_path / "bindings.json")
    found = verify(decode(chain.to_bytes()), bindings=load_bindings(tmp_path / "bindings.json"))
    assert [f.message for f in found] == ["operand 'x' is bound to null: its memory was freed"]
