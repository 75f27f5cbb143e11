"""Chains whose lasting operands stay bound from run to run."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from plan_cases import chain_operands, chain_plans

from sdm_runtime import PlanError, StepChain
from sdm_runtime.plan.held_chain import HeldChain, LastingTensor

LASTING = ("x", "snap")
CPU = torch.device("cpu")


def made() -> tuple[StepChain, dict[str, torch.Tensor]]:
    operands = chain_operands()
    return StepChain(chain_plans(operands), 3), operands


def split(operands: dict[str, torch.Tensor]) -> tuple[dict, dict]:
    names = {name for plan in chain_plans(operands) for name in plan.tensors}
    lasting = {name: operands[name] for name in LASTING}
    return lasting, {name: operands[name] for name in sorted(names - set(LASTING))}


def test_a_run_is_that_of_the_bound_chain() -> None:
    chain, operands = made()
    lasting, given = split(operands)
    held = HeldChain(chain, lasting, given)
    assert held.launches == chain.launches
    others = {name: x.clone() for name, x in given.items()}
    before = {name: x.clone() for name, x in given.items()}
    chain.run()
    held.run(others.values(), CPU)
    assert all(torch.equal(others[name], given[name]) for name in given)
    assert any(not torch.equal(before[name], given[name]) for name in given)  # the control


def test_no_tensor_is_kept_alive() -> None:
    chain, operands = made()
    lasting, given = split(operands)
    held = HeldChain(chain, lasting, given)
    dead = [weakref.ref(x) for x in operands.values()]
    assert all(each() is not None for each in dead)
    del chain, operands, lasting, given
    gc.collect()
    assert all(each() is None for each in dead)
    assert held.launches


def test_what_overlaps_is_refused() -> None:
    chain, operands = made()
    lasting, given = split(operands)
    held = HeldChain(chain, lasting, given)
    others = dict(given)
    others["grad"] = others["bank"]
    with pytest.raises(PlanError, match="memory that does not overlap"):
        held.run(others.values(), CPU)


def test_another_number_of_tensors_is_our_mistake() -> None:
    chain, operands = made()
    held = HeldChain(chain, *split(operands))
    with pytest.raises(RuntimeError, match=r"1 addresses for \d+ tensors"):
        held.run([operands["bank"]], CPU)


def test_a_tensor_is_still_what_it_was() -> None:
    x = torch.randn(4, 4)
    known = LastingTensor(x)
    assert known.is_still(x)
    assert not known.is_still(x.clone())
    assert not known.is_still(x.view(4, 4))  # another object, whose shape may change by itself
    kept = x.data
    for other in (torch.randn(4, 4), kept.t(), kept[:2], kept.view(torch.int32)):
        x.data = other
        assert not known.is_still(x)
    x.data = kept
    assert known.is_still(x)
    gone = weakref.ref(x)
    del x
    assert gone() is None
