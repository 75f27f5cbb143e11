"""How the operation behaves under autograd: once, in order, on the caller's bank."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from op_cases import DIFFERENTIABLE, Case, call, expected, make_grad, make_inputs, make_leaves, run
from op_cases import relative_error as error
from torch.utils.checkpoint import checkpoint

from sdm_runtime import CudaOutOfMemoryError, PlanError
from sdm_runtime.ops.backward import chain as chain_run
from sdm_runtime.ops.forward import run as forward

CASE = Case(T=37, S=12)


def _leaves(case=CASE, names=DIFFERENTIABLE):
    return make_leaves(case, names)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_bank_is_advanced_and_restored_to_the_bit(dtype):
    case = CASE.but(dtype=dtype)
    outcome, bank = run(case), make_inputs(case)["memory"]
    assert not torch.equal(outcome.advanced, bank)
    assert torch.equal(outcome.restored, bank)


def test_a_second_backward_raises():
    inputs = _leaves()
    readings = call(CASE, inputs)
    readings.backward(make_grad(CASE), retain_graph=True)
    bank = inputs["memory"].detach().clone()
    with pytest.raises(RuntimeError, match="the first backward of this call, got a second"):
        readings.backward(make_grad(CASE), retain_graph=True)
    with pytest.raises(RuntimeError, match="first backward"):
        readings.backward(make_grad(CASE))
    assert torch.equal(inputs["memory"], bank)


def test_of_two_backwards_at_once_one_raises(monkeypatch):
    inputs, wanted = _leaves(), run(CASE)
    done: list[Any] = []
    readings = call(CASE, inputs)

    def backward():
        return torch.autograd.grad(readings, inputs["v"], make_grad(CASE), retain_graph=True)

    def build_after_the_other(*given):
        build = patch.undo() or chain_run.build_chain
        done.extend(backward())
        return build(*given)

    with monkeypatch.context() as patch:
        patch.setattr(chain_run, "build_chain", build_after_the_other)
        with pytest.raises(RuntimeError, match="the first backward of this call, got a second"):
            backward()
    assert torch.equal(done[0], wanted.grads["v"])
    assert torch.equal(inputs["memory"], wanted.restored)


def test_a_second_derivative_raises():
    inputs = _leaves()
    readings = call(CASE, inputs)
    (grad,) = torch.autograd.grad(
        readings, inputs["v"], make_grad(CASE).requires_grad_(), create_graph=True
    )
    with pytest.raises(RuntimeError, match=r"once_differentiable|does not require grad"):
        grad.sum().backward()


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_one_input_alone_may_require_grad(name):
    inputs = _leaves(names=[name])
    call(CASE, inputs).backward(make_grad(CASE))
    wanted = run(CASE)
    for other in DIFFERENTIABLE:
        if other == name:
            assert torch.equal(inputs[other].grad, wanted.grads[other])
        else:
            assert inputs[other].grad is None
    assert torch.equal(inputs["memory"], make_inputs(CASE)["memory"])


@pytest.mark.parametrize(
    "make",
    [
        torch.nn.Parameter.clone,
        torch.tanh,  # its backward needs the result, which the call overwrites and gives back
        lambda x: (2 * x).view(-1, CASE.hd),
        lambda x: torch.cat((x, x))[: x.shape[0]],
    ],
    ids=["clone", "tanh", "view", "slice"],
)
def test_gradient_through_what_made_the_bank(make):
    inputs = make_inputs(CASE)
    weight = torch.nn.Parameter(inputs["memory"])
    inputs["memory"] = make(weight)
    call(CASE, inputs).backward(make_grad(CASE))
    exact = weight.detach().double().requires_grad_()
    outcome = expected(CASE, {**inputs, "memory": make(exact).detach()})
    make(exact).backward(outcome.grads["memory"])
    assert error(weight.grad, exact.grad) < 6e-7


def test_gradient_through_an_expanded_bank():
    inputs = make_inputs(CASE)
    weight = torch.nn.Parameter(inputs["memory"][: CASE.S].clone())
    inputs["memory"] = weight.expand(CASE.P, -1, -1).reshape(-1, CASE.hd)
    exact = expected(CASE, {k: x.detach() for k, x in inputs.items()})
    before = inputs["memory"].detach().clone()
    call(CASE, inputs).backward(make_grad(CASE))
    wanted = exact.grads["memory"].view(CASE.P, CASE.S, CASE.hd).sum(0)
    assert error(weight.grad, wanted) < 6e-7
    assert torch.equal(inputs["memory"], before)


def test_a_use_saved_before_the_call_stays_right():
    inputs = _leaves()
    weight = torch.randn_like(inputs["memory"]).requires_grad_()
    bank = inputs["memory"].detach().clone()
    loss = (inputs["memory"] * weight).sum()  # saves the bank for weight's gradient
    readings = call(CASE, inputs)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward(retain_graph=True)
    readings.backward(make_grad(CASE))
    loss.backward()
    assert torch.equal(weight.grad, bank)


def test_calls_on_one_bank_run_backward_last_to_first():
    names = [name for name in DIFFERENTIABLE if name != "memory"]
    first, second = _leaves(names=names), _leaves(CASE.but(seed=1), names)
    bank = second["memory"] = first["memory"]
    initial = bank.clone()
    y1 = call(CASE, first)
    middle = bank.clone()
    y2 = call(CASE, second)
    with pytest.raises(RuntimeError, match="last to first"):
        y1.backward(make_grad(CASE), retain_graph=True)
    y2.backward(make_grad(CASE))
    assert torch.equal(bank, middle)
    y1.backward(make_grad(CASE))
    assert torch.equal(bank, initial)
    wanted = run(CASE)
    assert torch.equal(first["v"].grad, wanted.grads["v"])


def test_a_call_that_failed_before_it_wrote_is_not_waited_for(monkeypatch):
    def fails(*_, **__):
        raise MemoryError("out of luck")

    inputs = _leaves()
    with monkeypatch.context() as patch:
        patch.setattr(forward, "KeepStore", fails)
        with pytest.raises(MemoryError) as caught:
            call(CASE, inputs)
    assert caught.tb is not None  # it holds the failed call's frames
    call(CASE, inputs).backward(make_grad(CASE))
    assert torch.equal(inputs["memory"], make_inputs(CASE)["memory"])


def test_one_loss_over_calls_on_one_bank():
    names = ["v"]
    first, second = _leaves(names=names), _leaves(CASE.but(seed=1), names)
    bank = second["memory"] = first["memory"]
    initial = bank.clone()
    (call(CASE, first).sum() + call(CASE, second).sum()).backward()
    assert torch.equal(bank, initial)


def test_a_bank_written_since_the_forward_is_refused():
    inputs = _leaves(names=["v"])
    readings = call(CASE, inputs)
    inputs["memory"][0, 0] += 1
    bank = inputs["memory"].clone()
    with pytest.raises(RuntimeError, match="memory: expected the bank as the forward left it"):
        readings.backward(make_grad(CASE))
    assert torch.equal(inputs["memory"], bank)
    assert inputs["v"].grad is None


def test_a_learned_bank_takes_one_call_at_a_time():
    inputs = _leaves()
    readings = call(CASE, inputs)
    advanced = inputs["memory"].detach().clone()
    with pytest.raises(RuntimeError, match="memory: expected a bank whose earlier call has run"):
        call(CASE, inputs)
    assert torch.equal(inputs["memory"], advanced)
    del readings  # a call whose backward can never come does not hold the bank
    call(CASE, inputs)


def test_sequences_of_one_parameter_may_be_called_apart():
    inputs, other = _leaves(CASE.but(P=1)), _leaves(CASE.but(P=1))
    both = torch.cat((inputs["memory"], other["memory"])).detach().requires_grad_()
    inputs["memory"], other["memory"] = both[: CASE.S], both[CASE.S :]
    case = CASE.but(P=1)
    (call(case, inputs) + call(case, other)).backward(make_grad(case))
    assert both.grad.abs().sum(1).min() > 0


def _checkpointed(use_reentrant):
    inputs = _leaves()

    def layer(memory, *rest):
        names = list(inputs)[1:]
        return call(CASE, {"memory": memory.clone(), **dict(zip(names, rest, strict=True))})

    return inputs, checkpoint(layer, *inputs.values(), use_reentrant=use_reentrant)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoint_around_a_call_that_makes_its_bank(use_reentrant):
    inputs, readings = _checkpointed(use_reentrant)
    wanted = run(CASE)
    assert torch.equal(readings.detach(), wanted.readings)
    readings.backward(make_grad(CASE))
    for name in DIFFERENTIABLE:
        assert torch.equal(inputs[name].grad, wanted.grads[name]), name
    assert torch.equal(inputs["memory"], make_inputs(CASE)["memory"])


@pytest.mark.parametrize("learned", [True, False])
def test_checkpoint_around_a_call_on_an_outer_bank_is_refused(learned):
    # It would be advanced a second time, from where the first forward left it.
    inputs = _leaves(names=DIFFERENTIABLE if learned else ["v"])
    readings = checkpoint(lambda: call(CASE, inputs), use_reentrant=False)
    advanced = inputs["memory"].detach().clone()
    with pytest.raises(RuntimeError, match="clone"):
        readings.backward(make_grad(CASE))
    assert torch.equal(inputs["memory"], advanced)


def test_a_reentrant_checkpoint_around_a_call_on_an_outer_bank_is_refused():
    inputs = _leaves(names=["v"])

    def layer(v):
        return call(CASE, inputs | {"v": v})

    readings = checkpoint(layer, inputs["v"], use_reentrant=True)
    advanced = inputs["memory"].clone()
    with pytest.raises(RuntimeError, match="clone the bank inside it"):
        readings.backward(make_grad(CASE))
    assert torch.equal(inputs["memory"], advanced)
    inputs["memory"].copy_(make_inputs(CASE)["memory"])  # another bank as far as anybody knows
    call(CASE, inputs).backward(make_grad(CASE))
    assert torch.equal(inputs["v"].grad, run(CASE).grads["v"])


def test_checkpoint_of_a_bank_it_is_given_is_refused():
    inputs = _leaves()

    def layer(*rest):
        return call(CASE, dict(zip(inputs, rest, strict=True)))

    readings = checkpoint(layer, *inputs.values(), use_reentrant=False)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        readings.backward(make_grad(CASE))


class _FailingChain:
    chain = None

    def __init__(self, chain, bank):
        self._bank = bank

    def run(self, _):
        self._bank[0] = 0
        raise RuntimeError("[gx_pa2] step 1: out of luck")


def test_a_failed_chain_says_that_the_bank_is_half_restored(monkeypatch):
    build = chain_run.build_chain
    monkeypatch.setattr(chain_run, "build_chain", lambda o, c: _FailingChain(build(o, c), o.bank))
    readings = call(CASE, _leaves())
    with pytest.raises(RuntimeError, match=r"half restored: .gx_pa2. step 1: out of luck"):
        readings.backward(make_grad(CASE), retain_graph=True)
    with pytest.raises(RuntimeError, match=r"another attempt .* half restored"):
        readings.backward(make_grad(CASE))


def test_a_failure_before_the_chain_leaves_the_bank_and_may_be_repeated(monkeypatch):
    inputs = _leaves()
    readings = call(CASE, inputs)
    advanced = inputs["memory"].detach().clone()

    def no_memory(operands, call):
        raise MemoryError("no room for plans")

    with monkeypatch.context() as patch:
        patch.setattr(chain_run, "build_chain", no_memory)
        with pytest.raises(MemoryError):
            readings.backward(make_grad(CASE), retain_graph=True)
    assert torch.equal(inputs["memory"], advanced)
    readings.backward(make_grad(CASE))
    assert torch.equal(inputs["memory"], make_inputs(CASE)["memory"])


class _RefusingChain:
    chain = None

    def __init__(self, error):
        self._error = error

    def run(self, _):
        raise self._error


def _memory_error(issued):
    error = CudaOutOfMemoryError("chain: step 3, plan 0: cuLaunchKernelEx: out of memory")
    error.issued = issued
    return error


def test_a_chain_that_issued_nothing_may_be_run_again(monkeypatch):
    inputs = _leaves()
    readings = call(CASE, inputs)
    advanced = inputs["memory"].detach().clone()
    for refusal in (_memory_error(0), PlanError("[chain] bank: moved")):
        with monkeypatch.context() as patch:
            patch.setattr(chain_run, "build_chain", lambda o, c, e=refusal: _RefusingChain(e))
            with pytest.raises(type(refusal)) as caught:
                readings.backward(make_grad(CASE), retain_graph=True)
        assert caught.value is refusal
        assert torch.equal(inputs["memory"], advanced)
    readings.backward(make_grad(CASE))
    assert torch.equal(inputs["memory"], make_inputs(CASE)["memory"])


@pytest.mark.parametrize("issued", [1, None])
def test_a_chain_that_may_have_issued_something_is_not_run_again(monkeypatch, issued):
    failure = _memory_error(issued)
    readings = call(CASE, _leaves())
    monkeypatch.setattr(chain_run, "build_chain", lambda o, c: _RefusingChain(failure))
    with pytest.raises(RuntimeError, match="half restored"):
        readings.backward(make_grad(CASE), retain_graph=True)
    with pytest.raises(RuntimeError, match="half restored"):
        readings.backward(make_grad(CASE))
