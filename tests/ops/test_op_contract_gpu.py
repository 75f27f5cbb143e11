"""The operation's contract with autograd on a GPU: state, versions, hooks, failures."""

from __future__ import annotations

import gc

import pytest
import torch
from op_cases import DIFFERENTIABLE, Case, call, make_grad, make_inputs, make_leaves
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import checkpoint

from sdm_runtime.ops.backward import chain as chain_run

CASE = Case(T=70, S=30, hd=64, dtype=torch.bfloat16)
CASES = {
    "bf16": CASE,
    "f32": CASE.but(dtype=torch.float32),
    "two slices": CASE.but(hd=200, gate_per_write=True),
    "f32 gradients of the bank": CASE.but(options={"grad_bank_fp32": True}),
    "one-hot": CASE.but(picks="one-hot"),
}


def leaves(case=CASE, names=DIFFERENTIABLE):
    return make_leaves(case, names, **{name: x.cuda() for name, x in make_inputs(case).items()})


def gradients(case, inputs, readings, **options):
    given = [inputs[name] for name in DIFFERENTIABLE if inputs[name].requires_grad]
    return torch.autograd.grad(readings, given, make_grad(case).cuda(), **options)


def plain(case):
    inputs = leaves(case)
    readings = call(case, inputs)
    advanced = inputs["memory"].detach().clone()
    return advanced, gradients(case, inputs, readings)


@pytest.mark.parametrize("name", CASES)
def test_a_kept_state_and_a_second_backward(name):
    case = CASES[name]
    advanced, wanted = plain(case)
    inputs = leaves(case)
    readings = call(case, inputs, keep_state=True)
    for again in (True, False):
        found = gradients(case, inputs, readings, retain_graph=again)
        assert torch.equal(inputs["memory"], advanced)
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_captured_segments_go_on_from_their_own_state():
    """A replay is a segment: it advances the bank that the replay before has left."""
    names = [name for name in DIFFERENTIABLE if name != "memory"]
    inputs, eager = leaves(names=names), leaves(names=names)

    grad = make_grad(CASE).cuda()

    def segment(given):
        readings = call(CASE, given, keep_state=True)
        return torch.autograd.grad(readings, [given[name] for name in names], grad)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        segment(leaves(names=names))
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = segment(inputs)
    for _ in range(3):
        graph.replay()
        wanted = segment(eager)
        assert torch.equal(inputs["memory"], eager["memory"])
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("quant", ["none", "fp8", "int4"])
def test_two_calls_on_one_bank_and_one_backward(quant):
    first, second = leaves(names=["v"]), leaves(CASE.but(seed=1), ["v"])
    bank = second["memory"] = first["memory"]
    before = bank.clone()
    options = {"snapshot_quant": quant}
    readings = call(CASE, first, **options), call(CASE, second, **options)
    (readings[0].sum() + readings[1].sum()).backward()
    assert torch.equal(bank, before) == (quant == "none")


def test_parts_of_a_storage_in_any_order():
    one = CASE.but(P=1)
    rows = torch.randn(2 * CASE.S, CASE.hd, device="cuda").bfloat16()
    before, version = rows.clone(), rows._version
    parts = rows[: CASE.S], rows[CASE.S :]
    calls = [leaves(one.but(seed=i), ["v"]) | {"memory": part} for i, part in enumerate(parts)]
    for readings in [call(one, inputs) for inputs in calls]:
        readings.sum().backward()
    assert torch.equal(rows, before)
    assert rows._version == version


def test_what_is_offloaded_comes_back_to_the_bit():
    _, wanted = plain(CASE)
    inputs = leaves()
    before, version = inputs["memory"].detach().clone(), inputs["memory"]._version
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        readings = call(CASE, inputs)
    found = gradients(CASE, inputs, readings)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert torch.equal(inputs["memory"], before)
    assert inputs["memory"]._version == version


def test_records_that_a_hook_has_changed_are_refused():
    inputs = leaves()
    change = lambda x: x // 2 * 2 if x.dtype == torch.uint8 else x  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, change):
        readings = call(CASE, inputs)
    advanced = inputs["memory"].detach().clone()
    with pytest.raises(ValueError, match="expected the saved records"):
        gradients(CASE, inputs, readings)
    assert torch.equal(inputs["memory"], advanced)


def test_a_rounded_snapshot_is_no_exact_restore():
    inputs = leaves(CASE.but(dtype=torch.float32))
    version = inputs["memory"]._version
    change = lambda x: x.bfloat16().to(x.dtype) if x.is_floating_point() else x  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, change):
        readings = call(CASE, inputs)
    readings.sum().backward()
    assert inputs["memory"]._version > version


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_call_may_be_captured(reentrant):
    _, wanted = plain(CASE)
    inputs = leaves()

    def layer(memory, *rest):
        named = dict(zip(list(inputs)[1:], rest, strict=True))
        return call(CASE, {"memory": memory.clone(), **named})

    grad = make_grad(CASE).cuda()

    def step():
        readings = checkpoint(
            layer, *inputs.values(), use_reentrant=reentrant, preserve_rng_state=False
        )
        readings.backward(grad)

    def clear():
        for name in DIFFERENTIABLE:
            inputs[name].grad = None

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    clear()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    clear_to = [inputs[name].grad for name in DIFFERENTIABLE]
    for x in clear_to:
        x.zero_()
    graph.replay()
    torch.cuda.synchronize()
    # A capture's first gradient is taken as it is, or added to zeros.
    for x, y in zip(clear_to, wanted, strict=True):
        assert torch.equal(x, y)


def test_a_forward_that_fails_gives_the_bank_back():
    def pack(x):
        raise torch.OutOfMemoryError("no room for it")

    inputs = leaves()
    before, version = inputs["memory"].detach().clone(), inputs["memory"]._version
    hooks = torch.autograd.graph.saved_tensors_hooks(pack, pack)
    with pytest.raises(torch.OutOfMemoryError), hooks:
        call(CASE, inputs)
    assert torch.equal(inputs["memory"], before)
    assert inputs["memory"]._version == version


def test_a_backward_without_memory_may_follow(monkeypatch):
    _, wanted = plain(CASE)
    inputs = leaves()
    readings = call(CASE, inputs)

    def full(*_):
        raise torch.OutOfMemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(chain_run, "build_chain", full)
        with pytest.raises(torch.OutOfMemoryError):
            gradients(CASE, inputs, readings, retain_graph=True)
    found = gradients(CASE, inputs, readings)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("together", [True, False])
def test_a_use_of_a_leaf_after_the_call_is_refused(together):
    inputs = leaves()
    readings = call(CASE, inputs)
    use = inputs["memory"].float().sum()
    with pytest.raises(RuntimeError, match="expected no gradient of the bank as it is after"):
        (readings.float().sum() + use if together else use).backward()


def test_kept_losses_hold_no_bank():
    inputs = leaves()
    inputs["memory"] = inputs["memory"] * 1
    storage = StorageWeakRef(inputs["memory"].untyped_storage())
    loss = call(CASE, inputs).sum()
    loss.backward()
    del inputs["memory"]
    gc.collect()
    assert storage.expired()
    assert loss.grad_fn is not None
