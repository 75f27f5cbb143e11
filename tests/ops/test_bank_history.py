"""Calls on one storage: which may be undone, and what autograd is told of the contents."""

from __future__ import annotations

import gc
import threading

import pytest
import torch
from op_cases import DIFFERENTIABLE, Case, call, make_inputs, make_leaves

from sdm_runtime.ops.call import bank_history, versions

CASE = Case(T=37, S=12)
INPUTS = [name for name in DIFFERENTIABLE if name != "memory"]
QUANTS = ["none", "bf16", "fp8", "int4"]


def leaves(case=CASE, bank=None, names=INPUTS):
    return make_leaves(case, names, **({} if bank is None else {"memory": bank}))


def other(bank, seed=1):
    return leaves(CASE.but(seed=seed), bank)


def test_a_version_is_not_used_for_other_contents():
    inputs = leaves()
    bank, weight = inputs["memory"], torch.randn(CASE.P * CASE.S, CASE.hd).requires_grad_()
    readings = call(CASE, inputs)
    penalty = (bank * weight).square().sum()  # saves the advanced bank
    readings.sum().backward()
    call(CASE, other(bank))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        penalty.backward()


def test_a_write_after_the_backward_takes_no_version_of_an_advanced_bank():
    inputs = leaves()
    bank, weight = inputs["memory"], torch.randn(CASE.P * CASE.S, CASE.hd).requires_grad_()
    readings = call(CASE, inputs)
    penalty = (bank * weight).sum()
    readings.sum().backward()
    for _ in range(8):
        bank.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            penalty.backward(retain_graph=True)


def test_versions_begin_anew_within_32_bits(monkeypatch):
    distance = versions._DISTANCE
    monkeypatch.setattr(versions, "_next", (1 << 32) - distance)
    bank = torch.zeros(2, 2)
    assert versions.take_new_version(bank) == bank._version == (1 << 32) - distance
    other_bank = torch.zeros(2, 2)
    assert versions.take_new_version(other_bank) == other_bank._version == 1 << 31


def test_a_new_version_lies_above_what_writes_have_reached():
    bank = torch.zeros(2, 2)
    versions.take_new_version(bank)
    versions.set_version(bank, versions._next + 5)
    assert versions.take_new_version(bank) > versions._FIRST
    seen = {bank._version}
    for _ in range(3):
        bank.add_(1)
        seen.add(bank._version)
    assert versions.take_new_version(bank) not in seen


@pytest.mark.parametrize("quant", QUANTS)
def test_one_backward_of_two_calls_on_one_bank(quant):
    first = leaves()
    bank = first["memory"]
    before = bank.clone()
    second = other(bank)
    options = {"snapshot_quant": quant}
    (call(CASE, first, **options).sum() + call(CASE, second, **options).sum()).backward()
    limit = {"none": 0.0, "bf16": 0.02, "fp8": 0.2, "int4": 0.6}[quant]
    assert (bank - before).abs().max() <= limit
    apart = leaves(bank=before.clone())
    call(CASE, apart, **options).sum().backward()
    if quant == "none":
        assert torch.equal(first["v"].grad, apart["v"].grad)


@pytest.mark.parametrize("quant", QUANTS)
def test_many_calls_on_one_bank_are_undone_in_turn(quant):
    bank = make_inputs(CASE)["memory"]
    calls = [other(bank, seed) for seed in range(5)]
    readings = [call(CASE, inputs, snapshot_quant=quant) for inputs in calls]
    for made in reversed(readings):
        made.sum().backward()
    assert all(inputs["v"].grad is not None for inputs in calls)


def test_an_exact_restore_gives_back_every_version():
    bank = make_inputs(CASE)["memory"]
    seen, readings = [bank._version], []
    for seed in range(4):
        readings.append(call(CASE, other(bank, seed)))
        seen.append(bank._version)
    assert len(set(seen)) == 5
    for made, version in zip(reversed(readings), reversed(seen[:-1]), strict=True):
        made.sum().backward()
        assert bank._version == version


def test_below_an_inexact_restore_no_version_comes_back():
    bank = make_inputs(CASE)["memory"]
    start = bank._version
    below = call(CASE, other(bank))
    middle = bank._version
    call(CASE, other(bank, 2), snapshot_quant="bf16").sum().backward()
    assert bank._version not in (start, middle)
    below.sum().backward()
    assert bank._version not in (start, middle)


def halves(rows):
    """Two cases of one sequence each on the halves of one storage."""
    one = CASE.but(P=1)
    first, second = leaves(one, rows[: CASE.S]), leaves(one.but(seed=1), rows[CASE.S :])
    return one, first, second


@pytest.mark.parametrize("turned", [False, True])
def test_calls_on_parts_of_a_storage_run_backward_in_any_order(turned):
    rows = make_inputs(CASE)["memory"]
    before, version = rows.clone(), rows._version
    one, first, second = halves(rows)
    readings = [call(one, first), call(one, second)]
    for made in reversed(readings) if turned else readings:
        assert rows._version != version
        made.sum().backward()
    assert torch.equal(rows, before)
    assert rows._version == version


def test_of_three_parts_the_versions_follow_the_contents():
    one = CASE.but(P=1)
    rows = torch.randn(3 * CASE.S, CASE.hd)
    version = rows._version
    parts = [rows[i * CASE.S : (i + 1) * CASE.S] for i in range(3)]
    readings = [call(one, leaves(one.but(seed=i), part)) for i, part in enumerate(parts)]
    seen = {version, rows._version}
    for index in (1, 0):
        readings[index].sum().backward()
        assert rows._version not in seen
        seen.add(rows._version)
    readings[2].sum().backward()
    assert rows._version == version


def test_a_call_without_gradient_on_another_part_spoils_nothing():
    rows = make_inputs(CASE)["memory"]
    one, first, second = halves(rows)
    before = rows[: CASE.S].clone()
    readings = call(one, first)
    with torch.no_grad():
        call(one, second)
    readings.sum().backward()
    assert torch.equal(rows[: CASE.S], before)


def test_a_call_without_gradient_on_the_same_rows_spoils_a_backward():
    inputs = leaves()
    readings = call(CASE, inputs)
    with torch.no_grad():
        call(CASE, inputs)
    with pytest.raises(RuntimeError, match="written since by something else"):
        readings.sum().backward()


def test_a_dropped_call_spoils_those_below_it_on_its_rows_alone():
    rows = make_inputs(CASE)["memory"]
    one, first, second = halves(rows)
    below, apart = call(one, first), call(one, second)
    dropped = call(one, leaves(one.but(seed=2), rows[: CASE.S]))
    del dropped
    gc.collect()
    with pytest.raises(RuntimeError, match="a call that was dropped"):
        below.sum().backward()
    apart.sum().backward()


def test_a_write_by_others_spoils_all_that_is_pending():
    rows = make_inputs(CASE)["memory"]
    one, first, second = halves(rows)
    readings = [call(one, first), call(one, second)]
    rows[0, 0] += 1
    for made in readings:
        with pytest.raises(RuntimeError, match="written since by something else"):
            made.sum().backward()


def test_a_second_call_from_another_thread_is_undone_first():
    inputs = leaves()
    bank = inputs["memory"]
    before = bank.clone()
    first = call(CASE, inputs)
    made = []
    thread = threading.Thread(target=lambda: made.append(call(CASE, other(bank))))
    thread.start()
    thread.join()
    with pytest.raises(RuntimeError, match="advanced by a later call"):
        first.sum().backward(retain_graph=True)
    made[0].sum().backward()
    first.sum().backward()
    assert torch.equal(bank, before)


def test_threads_advance_parts_of_a_storage_at_once():
    one, count = CASE.but(P=1), 4
    rows = torch.randn(count * CASE.S, CASE.hd)
    before, failed = rows.clone(), []
    barrier = threading.Barrier(count)

    def train(index):
        part = rows[index * CASE.S : (index + 1) * CASE.S]
        try:
            for seed in range(20):
                barrier.wait(20)
                call(one, leaves(one.but(seed=seed), part)).sum().backward()
        except BaseException as error:  # the assertion below shows it
            failed.append(error)
            barrier.abort()
            raise

    threads = [threading.Thread(target=train, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert torch.equal(rows, before)


def test_an_alias_with_a_counter_of_its_own_is_the_same_bank():
    bank = make_inputs(CASE)["memory"]
    first = call(CASE, other(bank))
    second = call(CASE, other(bank.data, 2))
    with pytest.raises(RuntimeError, match="last to first"):
        first.sum().backward(retain_graph=True)
    second.sum().backward()
    first.sum().backward()
    assert torch.equal(bank, make_inputs(CASE)["memory"])


def test_a_write_through_an_alias_is_noticed():
    bank = make_inputs(CASE)["memory"]
    alias = bank.data
    first, second = call(CASE, other(bank)), call(CASE, other(alias, 2))
    alias.add_(1)
    for made in (second, first):
        with pytest.raises(RuntimeError, match="last to first"):
            made.sum().backward()


@pytest.mark.parametrize("by_set", [False, True])
def test_a_bank_that_was_moved_is_not_restored_elsewhere(by_set):
    parameter = torch.nn.Parameter(make_inputs(CASE)["memory"])
    inputs = leaves(bank=parameter)
    readings = call(CASE, inputs)
    moved = parameter.detach().clone()
    if by_set:
        with torch.no_grad():
            parameter.set_(moved.untyped_storage(), 0, moved.shape, moved.stride())
    else:
        parameter.data = moved
    advanced = parameter.detach().clone()
    with pytest.raises(RuntimeError, match="memory: expected the bank in the memory that"):
        readings.sum().backward()
    assert torch.equal(parameter, advanced)
    assert inputs["v"].grad is None


def test_a_bank_whose_tensor_is_gone_is_restored():
    rows = make_inputs(CASE)["memory"]
    before = rows.clone()
    readings = call(CASE, leaves(bank=rows.view(rows.shape)))
    gc.collect()
    readings.sum().backward()
    assert torch.equal(rows, before)


def test_a_call_that_is_spoiled_spoils_what_it_has_advanced():
    one = CASE.but(P=1)
    rows = torch.randn(2 * CASE.S, CASE.hd)
    upper, lower = rows[CASE.S :], rows[: CASE.S]
    below = call(one, leaves(one, upper))
    whole = call(CASE, leaves(bank=rows))
    with torch.no_grad():  # on other rows than the first
        call(one, leaves(one.but(seed=1), lower))
    for made in (whole, below):
        with pytest.raises(RuntimeError, match="written since by something else"):
            made.sum().backward()


def test_a_storage_that_is_moved_between_calls_is_the_same():
    bank = make_inputs(CASE)["memory"]
    below = call(CASE, other(bank))
    bank.share_memory_()  # at another address
    above = call(CASE, other(bank, 2))
    with pytest.raises(RuntimeError, match="advanced by a later call"):
        below.sum().backward(retain_graph=True)
    above.sum().backward()
    below.sum().backward()
    assert torch.equal(bank, make_inputs(CASE)["memory"])


def test_a_kept_state_above_rounded_rows_has_a_version_of_its_own():
    bank, weight = make_inputs(CASE)["memory"], torch.randn(CASE.P * CASE.S, CASE.hd)
    weight.requires_grad_()
    below = call(CASE, other(bank), keep_state=True)
    call(CASE, other(bank, 2), snapshot_quant="int4").sum().backward()
    rounded = bank.clone()
    penalty = (bank * weight).sum()
    below.sum().backward()
    assert not torch.equal(bank, rounded)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        penalty.backward()


def test_many_writes_after_a_call_reach_no_version_of_another():
    bank, weight = make_inputs(CASE)["memory"], torch.randn(CASE.hd).requires_grad_()
    kept = call(CASE, other(bank))
    for row in range(CASE.P * CASE.S):
        bank[row].mul_(1.5)
    penalty = (bank[0] * weight).sum()
    for _ in range(400):
        bank[0].add_(1)
    call(CASE, other(bank, 2))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        penalty.backward()
    assert kept.grad_fn is not None


def test_aliases_of_calls_that_are_over_are_forgotten():
    bank = make_inputs(CASE)["memory"]
    pending = call(CASE, other(bank))
    history = bank_history.find_history(bank)
    for _ in range(40):
        call(CASE, other(bank.data, 2)).sum().backward()
    assert history is not None
    assert len(history._counters) < 20
    pending.sum().backward()
    assert torch.equal(bank, make_inputs(CASE)["memory"])


def test_nothing_is_known_of_a_storage_that_is_as_it_was():
    gc.collect()
    known = len(bank_history._histories)
    kept = []
    for _ in range(3):
        inputs = leaves()
        kept.append(call(CASE, inputs).sum())
        kept[-1].backward()
    assert len(bank_history._histories) == known


@pytest.mark.parametrize("learned", [False, True])
def test_outputs_that_are_kept_do_not_hold_the_bank(learned):
    names = DIFFERENTIABLE if learned else INPUTS
    inputs = leaves(names=names)
    bank = inputs["memory"] = inputs["memory"] * 1  # nobody else has it
    storage = torch.multiprocessing.reductions.StorageWeakRef(bank.untyped_storage())
    readings = call(CASE, inputs)
    loss = readings.sum()
    loss.backward()
    del bank, inputs["memory"]
    gc.collect()
    assert storage.expired()
    assert readings.grad_fn is not None
    assert loss.grad_fn is not None


def test_a_bank_is_held_until_its_backward():
    inputs = leaves()
    storage = torch.multiprocessing.reductions.StorageWeakRef(inputs["memory"].untyped_storage())
    readings = call(CASE, inputs)
    del inputs["memory"]
    gc.collect()
    assert not storage.expired()
    readings.sum().backward()
    gc.collect()
    assert storage.expired()


def test_random_histories_against_a_plain_model():
    """Calls on parts of a storage and backwards in random order: each is right or refused."""
    gen = torch.Generator().manual_seed(3)
    one = CASE.but(P=1, T=17)
    for _ in range(20):
        rows = torch.randn(3 * CASE.S, CASE.hd, generator=gen)
        contents = {rows._version: rows.clone()}
        pending = []
        for seed in range(12):
            pick = int(torch.randint(0, 5, (), generator=gen))
            if pick < 3:
                part = rows[pick * CASE.S : (pick + 1) * CASE.S]
                pending.append((pick, call(one, leaves(one.but(seed=seed), part))))
            elif pending:
                index = int(torch.randint(0, len(pending), (), generator=gen))
                part_number, readings = pending[index]
                if any(number == part_number for number, _ in pending[index + 1 :]):
                    with pytest.raises(RuntimeError, match="advanced by a later call"):
                        readings.sum().backward(retain_graph=True)
                else:
                    readings.sum().backward()
                    del pending[index]
            if rows._version in contents:
                assert torch.equal(contents[rows._version], rows)
            contents[rows._version] = rows.clone()
