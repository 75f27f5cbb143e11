"""What the operation keeps for later calls, and when it gives that back."""

from typing import Any

import pytest
import torch
from op_cases import Case, call, make_grad, make_inputs

import sdm_runtime
from sdm_runtime import CudaOutOfMemoryError
from sdm_runtime.ops.autograd import eager, function
from sdm_runtime.ops.backward import chain as chain_run
from sdm_runtime.ops.routes import bound_chains

CASE = Case()


@pytest.fixture(autouse=True)
def templates(monkeypatch):
    """Those of this test alone."""
    mine: dict[Any, Any] = {}
    monkeypatch.setattr(bound_chains, "_templates", mine)
    return mine


def full(*_, **__):
    raise CudaOutOfMemoryError("no room")


def leaves():
    inputs = make_inputs(CASE)
    return inputs | {"v": inputs["v"].clone().requires_grad_()}


def train(inputs):
    readings = call(CASE, inputs)
    readings.backward(make_grad(CASE))
    return readings.detach(), inputs["v"].grad


def test_a_release_forgets_all_recordings_and_changes_no_bit(templates):
    first = train(leaves())
    assert len(templates) > 1
    sdm_runtime.release_memory()
    assert templates == {}
    again = train(leaves())
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_a_forward_without_memory_gives_it_back(monkeypatch, templates):
    train(leaves())
    kept = len(templates)
    for module, inputs in ((eager, make_inputs(CASE)), (function, leaves())):
        with monkeypatch.context() as patch:
            patch.setattr(module, "run_forward", full)
            with pytest.raises(torch.OutOfMemoryError, match="no room"):
                call(CASE, inputs)
        assert templates == {}
        train(leaves())
        assert len(templates) == kept


def test_a_backward_without_memory_gives_it_back_and_may_follow(monkeypatch, templates):
    expected = train(leaves())
    inputs = leaves()
    readings = call(CASE, inputs)
    with monkeypatch.context() as patch:
        patch.setattr(chain_run, "build_chain", full)
        with pytest.raises(torch.OutOfMemoryError, match="no room"):
            readings.backward(make_grad(CASE), retain_graph=True)
    assert templates == {}
    readings.backward(make_grad(CASE))
    assert torch.equal(inputs["v"].grad, expected[1])


def test_another_error_keeps_them(monkeypatch, templates):
    train(leaves())
    kept = dict(templates)

    def broken(*_, **__):
        raise RuntimeError("something else")

    monkeypatch.setattr(eager, "run_forward", broken)
    with pytest.raises(RuntimeError, match="something else"):
        call(CASE, make_inputs(CASE))
    assert templates == kept
