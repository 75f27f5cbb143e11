"""A call or backward that fails in the middle: the bank is as it was, or says that it is not."""

from __future__ import annotations

import gc
import linecache
import sys
from contextlib import contextmanager

import pytest
import torch
from op_cases import DIFFERENTIABLE, Case, call, make_grad, make_inputs, make_leaves, run
from torch.utils._python_dispatch import TorchDispatchMode

from sdm_runtime import CudaError, dispatch
from sdm_runtime.ops.backward import run as backward
from sdm_runtime.ops.call import broken_banks
from sdm_runtime.ops.forward import chain as forward_chain

CASE = Case(T=70, S=12)  # five steps
BROKEN = "expected a whole bank, got one that is half written"


def leaves(case=CASE):
    return make_leaves(case, DIFFERENTIABLE[1:])


class Interrupted(KeyboardInterrupt):
    """As Ctrl-C raises it, anywhere."""


@contextmanager
def interrupt_before_step(monkeypatch, step):
    steps = iter(range(1000))

    def look(*tensors):
        if next(steps) == step:
            raise Interrupted
        return True

    with monkeypatch.context() as patch:
        patch.setattr(forward_chain, "all_finite", look)
        yield


@pytest.mark.parametrize("step", [0, 1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("quant", ["none", "fp8", "int4"])
def test_an_interrupted_forward_gives_the_bank_back(step, dtype, quant, monkeypatch):
    case = CASE.but(dtype=dtype, options={"snapshot_quant": quant})
    inputs = leaves(case)
    bank, version = inputs["memory"].clone(), inputs["memory"]._version
    with interrupt_before_step(monkeypatch, step), pytest.raises(Interrupted):
        call(case, inputs)
    assert torch.equal(inputs["memory"], bank)
    assert inputs["memory"]._version == version
    call(case, inputs).backward(make_grad(case))
    assert torch.equal(inputs["v"].grad, run(case).grads["v"])


def test_a_forward_without_snapshots_says_that_the_bank_is_half_written(monkeypatch):
    inputs = make_inputs(CASE)
    bank = inputs["memory"].clone()
    with interrupt_before_step(monkeypatch, 2), pytest.raises(Interrupted):
        call(CASE, inputs)
    assert not torch.equal(inputs["memory"], bank)
    for given in (inputs, leaves() | {"memory": inputs["memory"]}):
        with pytest.raises(RuntimeError, match=BROKEN):
            call(CASE, given)
    with pytest.raises(RuntimeError, match="Interrupted"):
        call(
            CASE.but(P=1), {k: x[:1] for k, x in inputs.items()} | {"memory": inputs["memory"][:12]}
        )
    inputs["memory"].copy_(bank)
    call(CASE, inputs)


def test_before_the_first_write_nothing_is_broken(monkeypatch):
    inputs = make_inputs(CASE)
    bank, version = inputs["memory"].clone(), inputs["memory"]._version
    with interrupt_before_step(monkeypatch, 0), pytest.raises(Interrupted):
        call(CASE, inputs)
    assert torch.equal(inputs["memory"], bank)
    assert inputs["memory"]._version == version
    call(CASE, inputs)


def test_a_broken_inference_bank_stays_refused(monkeypatch):
    with torch.inference_mode():
        inputs = {k: x.clone() for k, x in make_inputs(CASE).items()}
        with interrupt_before_step(monkeypatch, 2), pytest.raises(Interrupted):
            call(CASE, inputs)
        inputs["memory"].zero_()
        with pytest.raises(RuntimeError, match="pass another one"):
            call(CASE, inputs)
        call(CASE, inputs | {"memory": inputs["memory"].clone()})


def test_a_storage_at_the_address_of_a_broken_one_is_whole(monkeypatch):
    for _ in range(20):
        inputs = make_inputs(CASE)
        call(CASE, inputs)  # never refused, wherever the allocator puts it
        with interrupt_before_step(monkeypatch, 2), pytest.raises(Interrupted):
            call(CASE, inputs)
        del inputs
        gc.collect()
    assert len(broken_banks._broken._known) == 1  # the next one makes room


def many_segments(patch):
    """As calls have them whose working memory is large."""
    patch.setattr("sdm_runtime.ops.call.geometry._SEGMENT_BYTES_HOST", 1)


@pytest.mark.parametrize(("quant", "whole"), [("none", True), ("bf16", False), ("int4", False)])
def test_segments_that_were_encoded_cannot_be_given_back(quant, whole, monkeypatch):
    inputs = leaves()
    bank = inputs["memory"].clone()
    many_segments(monkeypatch)
    with interrupt_before_step(monkeypatch, 3), pytest.raises(Interrupted):
        call(CASE, inputs, snapshot_quant=quant)
    assert torch.equal(inputs["memory"], bank) == whole
    if not whole:
        with pytest.raises(RuntimeError, match=BROKEN):
            call(CASE, inputs)


def test_a_hook_that_fails_gives_the_bank_back():
    def pack(x):
        raise torch.OutOfMemoryError("no room for it")

    inputs = leaves()
    bank, version = inputs["memory"].clone(), inputs["memory"]._version
    with (
        pytest.raises(torch.OutOfMemoryError),
        torch.autograd.graph.saved_tensors_hooks(pack, pack),
    ):
        call(CASE, inputs)
    assert torch.equal(inputs["memory"], bank)
    assert inputs["memory"]._version == version


@pytest.mark.parametrize(("issued", "steps"), [(0, 0), (2, 0), (3, 1), (8, 2), (None, None)])
def test_a_device_that_fails_gives_back_the_steps_that_it_has_run(issued, steps, monkeypatch):
    """As on a device: one chain of three launches a step, of which the last one writes."""

    def as_on_a_device(kernels, operands, geometry, segment):
        answers = real(("fx_read", "gemm"), operands, geometry, segment)
        writes = real(("fx_write",), operands, geometry, segment)

        class Chain:
            def run(self, marks):
                for step in range(segment.steps if steps is None else steps):
                    answers.chain.run_step(step)
                    writes.chain.run_step(step)
                error = CudaError("chain: step 2: out of luck")
                error.issued = issued
                raise error

        return Chain()

    real = forward_chain._chain
    monkeypatch.setattr(forward_chain, "_chain", as_on_a_device)
    monkeypatch.setattr(forward_chain, "reads_are_free", lambda x: False)
    inputs = leaves()
    bank = inputs["memory"].clone()
    with pytest.raises(CudaError):
        call(CASE, inputs)
    assert torch.equal(inputs["memory"], bank) == (steps is not None)
    if steps is None:
        with pytest.raises(RuntimeError, match=BROKEN):
            call(CASE, inputs)


def test_undoing_that_fails_is_told(monkeypatch):
    inputs = leaves()

    def fails(*_, **__):
        raise MemoryError("no room to restore")

    monkeypatch.setattr("sdm_runtime.ops.forward.progress._restore", fails)
    with interrupt_before_step(monkeypatch, 2), pytest.raises(MemoryError):
        call(CASE, inputs)
    with pytest.raises(RuntimeError, match=BROKEN):
        call(CASE, inputs)


class AtLine:
    """Interrupts at the n-th line of the package that runs in this thread."""

    def __init__(self, line):
        self.left = line
        self.fell = False

    def _trace(self, frame, event, _):
        if "sdm_runtime" not in frame.f_code.co_filename:
            return None
        # No signal falls between a block and its end; a trace has an event there.
        if event == "line" and not self._is_with(frame):
            self.left -= 1
            if self.left == 0:
                self.fell = True
                raise Interrupted
        return self._trace

    @staticmethod
    def _is_with(frame):
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        return line.lstrip().startswith("with ")

    def __enter__(self):
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_):
        sys.settrace(self._before)


def lines(run_once):
    counter = AtLine(-1)
    with counter:
        run_once()
    return -1 - counter.left


def is_refused(inputs):
    with pytest.raises(RuntimeError, match=BROKEN):
        call(CASE, {k: x.detach() for k, x in inputs.items()})
    return True


@pytest.mark.parametrize("grad", [True, False])
def test_an_interrupt_at_any_line_of_a_forward(grad):
    make = leaves if grad else lambda: make_inputs(CASE)
    before, after = make_inputs(CASE)["memory"], run(CASE).advanced
    call(CASE, make())
    total = lines(lambda: call(CASE, make()))
    seen = set()
    for line in range(1, total, max(total // 150, 1)):
        inputs = make()
        with pytest.raises(Interrupted), AtLine(line):
            call(CASE, inputs)
        bank = inputs["memory"].detach()
        state = (
            "before" if torch.equal(bank, before) else "after" if torch.equal(bank, after) else "?"
        )
        if state == "?":
            assert is_refused(inputs), line
            assert not grad, line  # snapshots give it back
        seen.add(state)
    assert "before" in seen


def test_an_interrupt_at_any_line_of_a_backward():
    before, after = make_inputs(CASE)["memory"], run(CASE).advanced
    wanted = run(CASE).grads["v"]

    def backward_of(inputs, readings):
        return torch.autograd.grad(readings, inputs["v"], make_grad(CASE), retain_graph=True)[0]

    def prepared():
        inputs = leaves()
        return inputs, call(CASE, inputs)

    total = lines(lambda: backward_of(*prepared())) - lines(prepared)
    seen = set()
    for line in range(1, total, max(total // 150, 1)):
        inputs, readings = prepared()
        with pytest.raises(Interrupted), AtLine(line):
            backward_of(inputs, readings)
        bank = inputs["memory"]
        if torch.equal(bank, before):
            seen.add("before")
            with pytest.raises(RuntimeError, match=r"first backward|half restored"):
                backward_of(inputs, readings)
        elif torch.equal(bank, after):
            seen.add("after")
            assert torch.equal(backward_of(inputs, readings), wanted), line
        else:
            assert is_refused(inputs), line
    assert seen == {"before", "after"}


def test_memory_for_the_gradients_is_there_before_the_bank_changes(monkeypatch):
    """Nothing is allocated once the chain has begun."""
    inputs = leaves(CASE.but(hd=256, gate_per_write=True))
    case = CASE.but(hd=256, gate_per_write=True)
    readings = call(case, inputs)
    began = []
    real = backward._run_chain

    def begin(*given, **options):
        real(*given, **options)
        began.append(True)

    class Allocations(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.after = []

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if began and function.overloadpacket.__name__ in ("empty", "new_empty", "empty_like"):
                self.after.append(str(function))
            return function(*args, **(kwargs or {}))

    monkeypatch.setattr(backward, "_run_chain", begin)
    with Allocations() as allocations:
        torch.autograd.grad(readings, inputs["v"], make_grad(case))
    assert began
    assert not allocations.after


def test_a_backward_without_memory_may_follow(monkeypatch):
    inputs = leaves()
    readings = call(CASE, inputs)
    advanced = inputs["memory"].clone()

    def full(*_):
        raise torch.OutOfMemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(backward, "TermsRoom", full)
        with pytest.raises(torch.OutOfMemoryError):
            readings.backward(make_grad(CASE), retain_graph=True)
    assert torch.equal(inputs["memory"], advanced)
    readings.backward(make_grad(CASE))
    assert torch.equal(inputs["v"].grad, run(CASE).grads["v"])


def test_an_observer_that_fails_stops_nothing_half_way(monkeypatch):
    inputs = leaves()
    readings = call(CASE, inputs)
    advanced = inputs["memory"].clone()
    dispatch.keep_last_chain(True)
    try:
        with monkeypatch.context() as patch:
            patch.setattr("sdm_runtime.plan.chain.StepChain.unbound", lambda _: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                readings.backward(make_grad(CASE), retain_graph=True)
        assert torch.equal(inputs["memory"], advanced)
        readings.backward(make_grad(CASE))
        assert dispatch.last_chain() is not None
    finally:
        dispatch.keep_last_chain(False)
    assert torch.equal(inputs["v"].grad, run(CASE).grads["v"])


def test_a_half_restored_bank_is_refused_by_later_calls(monkeypatch):
    inputs = leaves()
    readings = call(CASE, inputs)

    def half(self, ran):
        inputs["memory"].view(-1)[:3] = 0  # what a device has written when it fails
        raise CudaError("chain: step 3: out of luck")

    with monkeypatch.context() as patch:
        patch.setattr("sdm_runtime.ops.routes.step_chain.PassChain.run", half)
        with pytest.raises(RuntimeError, match="half restored"):
            readings.backward(make_grad(CASE))
    with pytest.raises(RuntimeError, match=BROKEN):
        call(CASE, inputs)


def test_another_part_of_a_broken_storage_is_whole(monkeypatch):
    one = CASE.but(P=1)
    rows = make_inputs(CASE)["memory"]
    pending = leaves(one) | {"memory": rows[CASE.S :]}
    readings = call(one, pending)
    broken = make_inputs(one) | {"memory": rows[: CASE.S]}
    with interrupt_before_step(monkeypatch, 2), pytest.raises(Interrupted):
        call(one, broken)
    readings.sum().backward()
    call(one, make_inputs(one.but(seed=1)) | {"memory": rows[CASE.S :]})
    with pytest.raises(RuntimeError, match=BROKEN):
        call(one, broken)


@pytest.mark.parametrize("backward_too", [False, True])
def test_after_an_interrupt_others_writes_are_still_noticed(backward_too):
    """A call of the same storage is pending: what an interrupted one leaves must not blind it."""
    one = CASE.but(P=1)

    def prepared():
        """A pending call on the first half of some rows, and what is to be interrupted."""
        rows = make_inputs(CASE)["memory"]
        readings = call(one, leaves(one) | {"memory": rows[: CASE.S]})
        inner = leaves(one.but(seed=1)) | {"memory": rows[CASE.S :]}
        if not backward_too:
            return rows, readings, lambda: call(one, inner)
        made = call(one, inner)
        grad = torch.ones_like(made)
        return rows, readings, lambda: torch.autograd.grad(made, inner["v"], grad)

    total = lines(prepared()[2])
    for line in range(1, total, max(total // 120, 1)):
        rows, readings, inner = prepared()
        with pytest.raises(Interrupted), AtLine(line):
            inner()
        rows.mul_(2)
        with pytest.raises(RuntimeError, match="memory: expected"):
            readings.sum().backward()
