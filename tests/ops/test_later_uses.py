"""Uses of a learned bank between a call and its backward: refused, not taken for earlier ones."""

from __future__ import annotations

import copy
import io
import warnings

import pytest
import torch
from op_cases import Case, call, make_grad, make_inputs, make_leaves, run

CASE = Case(T=37, S=12)
REFUSED = "expected no gradient of the bank as it is after a call"


def leaves():
    return make_leaves(CASE)


def test_a_use_after_the_call_in_one_loss_is_refused():
    inputs = leaves()
    readings = call(CASE, inputs)
    with pytest.raises(RuntimeError, match=REFUSED):
        (readings.sum() + inputs["memory"].sum()).backward()
    assert inputs["memory"].grad is None


def test_a_use_after_the_call_by_itself_is_refused():
    inputs = leaves()
    readings = call(CASE, inputs)
    with pytest.raises(RuntimeError, match=REFUSED):
        inputs["memory"].sum().backward()
    readings.backward(make_grad(CASE))
    assert torch.equal(inputs["memory"].grad, run(CASE).grads["memory"])


def test_two_uses_of_which_the_first_to_arrive_is_summed_in_place_are_refused():
    inputs = leaves()
    readings = call(CASE, inputs)
    with pytest.raises(RuntimeError, match=REFUSED):
        torch.autograd.grad(
            [inputs["memory"].sum(), readings.sum(), inputs["memory"].sum()], inputs["memory"]
        )


@pytest.mark.parametrize("together", [True, False])
def test_a_use_before_the_call_is_right(together):
    inputs = leaves()
    before = inputs["memory"].sum()
    readings = call(CASE, inputs)
    if together:
        torch.autograd.backward([before, readings], [torch.ones(()), make_grad(CASE)])
    else:
        before.backward()
        readings.backward(make_grad(CASE))
    wanted = run(CASE).grads["memory"] + 1
    assert torch.allclose(inputs["memory"].grad, wanted, atol=1e-6)


def hooks(x):
    return x._backward_hooks or {}


def test_the_bank_is_free_again_after_the_backward():
    inputs = leaves()
    for count in (1, 2):
        call(CASE, inputs).backward(make_grad(CASE))
        assert not hooks(inputs["memory"])
        inputs["memory"].sum().backward()
        wanted = count * (run(CASE).grads["memory"] + 1)
        assert torch.allclose(inputs["memory"].grad, wanted, atol=1e-5)


def test_a_backward_that_leaves_the_bank_out_ends_it():
    inputs = leaves()
    readings = call(CASE, inputs)
    readings.backward(make_grad(CASE), inputs=[inputs["v"]])
    inputs["memory"].sum().backward()
    assert not hooks(inputs["memory"])


def test_a_call_that_is_dropped_ends_it():
    inputs = leaves()
    readings = call(CASE, inputs)
    assert hooks(inputs["memory"])
    del readings
    assert not hooks(inputs["memory"])
    inputs["memory"].sum().backward()


def test_autograd_grad_gives_the_gradient_of_the_bank_before():
    inputs = leaves()
    readings = call(CASE, inputs)
    (grad,) = torch.autograd.grad(readings, inputs["memory"], make_grad(CASE))
    assert torch.equal(grad, run(CASE).grads["memory"])
    assert not hooks(inputs["memory"])


def test_an_advanced_bank_can_be_saved():
    inputs = leaves()
    readings = call(CASE, inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.save(inputs["memory"], io.BytesIO())
        copy.deepcopy(inputs["memory"])
    readings.backward(make_grad(CASE))


@pytest.mark.parametrize(
    "hook", [lambda g: g * 0.5, lambda g: g.clone(), lambda g: g.mul_(2), lambda g: None]
)
def test_hooks_of_the_bank_itself_are_no_later_uses(hook):
    inputs = leaves()
    seen = []
    inputs["memory"].register_hook(hook)
    inputs["memory"].register_hook(lambda g: seen.append(g.clone()))
    call(CASE, inputs).backward(make_grad(CASE))
    changed = hook(run(CASE).grads["memory"].clone())
    wanted = run(CASE).grads["memory"] if changed is None else changed
    assert torch.equal(inputs["memory"].grad, wanted)
    assert torch.equal(seen[0], wanted)
    assert len(hooks(inputs["memory"])) == 2


def test_a_kept_output_of_a_bank_that_was_written_since_forbids_nothing():
    inputs = leaves()
    kept = call(CASE, inputs)
    with torch.no_grad():
        inputs["memory"].copy_(make_inputs(CASE)["memory"])
    call(CASE, inputs).backward(make_grad(CASE))
    inputs["memory"].sum().backward()
    assert torch.allclose(inputs["memory"].grad, run(CASE).grads["memory"] + 1, atol=1e-5)
    assert kept.grad_fn is not None
