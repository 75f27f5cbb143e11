"""The operation in compiled graphs: one graph, the bits of eager, a bank that comes and goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from compiled_cases import counted, fresh_compilations, inputs_of, train, write_read
from op_cases import Case, beside
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

CASE = Case(T=40, hd=8)
BACKENDS = ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    with fresh_compilations():
        yield


@pytest.mark.parametrize("bank_grad", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_training_step_is_that_of_eager(backend: str, bank_grad: bool) -> None:
    inputs = inputs_of(CASE)
    compiled, counter = counted(write_read, backend)
    wanted = train(write_read, CASE, inputs, bank_grad=bank_grad)
    assert not torch.equal(wanted.advanced, inputs["memory"])  # the control
    assert torch.equal(wanted.restored, inputs["memory"])
    for _ in range(2):
        given = train(compiled, CASE, inputs, bank_grad=bank_grad)
        assert given.differs(wanted) == []
    assert counter.frame_count == 1
    other = train(compiled, CASE, inputs_of(CASE.but(seed=1)), bank_grad=bank_grad)
    assert set(other.differs(wanted)) == {*vars(wanted), *wanted.grads} - {"grads"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_call_without_a_gradient_advances_the_bank(backend: str) -> None:
    compiled, _ = counted(write_read, backend)
    wanted, given = inputs_of(CASE), inputs_of(CASE)
    for _ in range(2):
        assert torch.equal(compiled(given, CASE), write_read(wanted, CASE))
        assert torch.equal(given["memory"], wanted["memory"])
    with torch.inference_mode():
        assert torch.equal(compiled(given, CASE), write_read(wanted, CASE))
        assert torch.equal(given["memory"], wanted["memory"])


WAYS: dict[str, tuple[Case, Any]] = {
    "flat": (CASE, lambda name, x: x if name == "memory" else x.flatten(0, 1)),
    "heads": (CASE.but(P=4), lambda name, x: beside(x, 2) if name == "v" else x),
    "gates": (CASE.but(gate_per_write=True), None),
    "int64": (CASE, lambda name, x: x.long() if name.endswith("idx") else x),
    "bf16 values": (CASE, lambda name, x: x.bfloat16() if name in ("v", "g") else x),
    "bf16": (CASE.but(dtype=torch.bfloat16), None),
    "fp32 gradient": (CASE.but(dtype=torch.bfloat16, options={"grad_bank_fp32": True}), None),
    "bf16 rows": (CASE.but(options={"snapshot_quant": "bf16"}), None),
    "fp8 rows": (CASE.but(options={"snapshot_quant": "fp8"}), None),
    "int4 rows": (CASE.but(options={"snapshot_quant": "int4"}), None),
    "shared": (Case(P=1, T=40, hd=8, S=0, options={"shared_bank": True}), None),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_calling_it(way: str) -> None:
    case, change = WAYS[way]
    inputs = inputs_of(case.but(S=case.S or 40))
    if change is not None:
        inputs = {name: change(name, x) for name, x in inputs.items()}
    compiled, _ = counted(write_read, "aot_eager")
    # A bank that requires grad is a leaf here, which nothing may advance twice: no more than one.
    assert train(compiled, case, inputs).differs(train(write_read, case, inputs)) == []


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_lengths_share_few_graphs(backend: str, dynamic: bool | None) -> None:
    """Those below 16 tokens, below a chunk and above one have graphs of their own."""
    compiled, counter = counted(write_read, backend, dynamic=dynamic)
    for tokens in (50, 33, 70, 90, 41, 20, 18, 17, 5, 3, 9):
        case = CASE.but(T=tokens, C=32)
        inputs = inputs_of(case)
        assert train(compiled, case, inputs).differs(train(write_read, case, inputs)) == []
    assert counter.frame_count <= 4


def test_numbers_of_sequences_share_a_graph() -> None:
    compiled, counter = counted(write_read, "aot_eager")
    for sequences in (2, 3, 4, 6):
        case = CASE.but(P=sequences)
        inputs = inputs_of(case)
        assert train(compiled, case, inputs).differs(train(write_read, case, inputs)) == []
    assert counter.frame_count == 2


def from_a_product(inputs: dict[str, Tensor], case: Case) -> Tensor:
    bank = 1.5 * inputs["memory"]
    return write_read(inputs | {"memory": bank}, case)


def from_a_part(inputs: dict[str, Tensor], case: Case) -> Tensor:
    bank = torch.cat([inputs["memory"], inputs["memory"]])[: inputs["memory"].shape[0]]
    return write_read(inputs | {"memory": bank}, case)


def from_a_view(inputs: dict[str, Tensor], case: Case) -> Tensor:
    return write_read(inputs | {"memory": inputs["memory"][:]}, case)


@pytest.mark.parametrize("made", [from_a_product, from_a_part, from_a_view])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_bank_made_in_the_graph(made: Any, backend: str) -> None:
    compiled, _ = counted(made, backend)
    inputs = inputs_of(CASE)
    assert train(compiled, CASE, inputs).differs(train(made, CASE, inputs)) == []


def test_a_bank_made_outside_of_the_graph() -> None:
    compiled, _ = counted(write_read, "aot_eager")

    def outside(run: Any) -> Any:
        def call(inputs: dict[str, Tensor], case: Case) -> Tensor:
            return run(inputs | {"memory": inputs["memory"] + 1}, case)

        return call

    inputs = inputs_of(CASE)
    given, wanted = train(outside(compiled), CASE, inputs), train(outside(write_read), CASE, inputs)
    assert given.differs(wanted) == []


@pytest.mark.parametrize(("run", "copied"), [(write_read, True), (from_a_product, False)])
def test_a_callers_bank_alone_is_copied_for_the_backward(run: Any, copied: bool) -> None:
    """Written in place it would be saved, and a compiler may use up what is saved."""
    graphs = []

    def keep(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append([str(node.target) for node in graph.graph.nodes])
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=keep, keep_inference_input_mutations=True)
    compiled = torch.compile(run, backend=backend, fullgraph=True)
    train(compiled, CASE, inputs_of(CASE))
    forward, backward = graphs
    assert ("sdm_runtime.copy_bank.default" in forward) is copied
    assert "auto_functionalized_v2" in forward
    assert "auto_functionalized_v2" in backward
    with torch.no_grad():
        compiled(inputs_of(CASE), CASE)
    assert "sdm_runtime.copy_bank.default" not in graphs[2]


@pytest.mark.parametrize("backend", BACKENDS[1:])
@pytest.mark.parametrize("first", [0, 1])
def test_two_graphs_on_a_bank_are_refused_by_torch(first: int, backend: str) -> None:
    compiled, _ = counted(write_read, backend)
    inputs = inputs_of(CASE)
    inputs["v"].requires_grad_()
    readings = [compiled(inputs, CASE) for _ in range(2)]

    def backwards() -> None:
        for i in (first, 1 - first):
            readings[i].sum().backward()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        backwards()


def twice(inputs: dict[str, Tensor], case: Case) -> Tensor:
    return write_read(inputs, case) + write_read(inputs, case).roll(1, 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_calls_on_a_bank_restore_it_last_to_first(backend: str) -> None:
    compiled, _ = counted(twice, backend)
    inputs = inputs_of(CASE)
    wanted = train(twice, CASE, inputs, bank_grad=False)
    assert train(compiled, CASE, inputs, bank_grad=False).differs(wanted) == []


def test_a_second_call_on_a_bank_that_requires_grad_is_refused() -> None:
    compiled, _ = counted(twice, "aot_eager")
    with pytest.raises(Exception, match="a bank that requires grad, got a second"):
        train(compiled, CASE, inputs_of(CASE))


def test_a_graph_may_return_a_clone_of_its_bank() -> None:
    def both(inputs: dict[str, Tensor], case: Case) -> tuple[Tensor, Tensor]:
        bank = 2 * inputs["memory"]
        return write_read(inputs | {"memory": bank}, case), bank.detach().clone()

    compiled, _ = counted(both, "aot_eager")
    inputs = inputs_of(CASE)
    _, wanted = both(inputs, CASE)
    inputs["v"].requires_grad_()
    readings, bank = compiled(inputs, CASE)
    readings.sum().backward()
    assert torch.equal(bank, wanted)


MISTAKES: dict[str, tuple[str, Any]] = {
    "beta": (r"\[sdm_write_read\] beta: expected \[2, 40, 1\]", lambda x: x[:, :3]),
    "k_idx": (r"\[sdm_write_read\] k_idx: expected int32 or int64", lambda x: x.float()),
    "memory": (r"\[sdm_write_read\] memory: expected .* = 80 rows", lambda x: x[:-1]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_while_the_graph_is_made(name: str) -> None:
    message, change = MISTAKES[name]
    inputs = inputs_of(CASE)
    compiled, _ = counted(write_read, "aot_eager")
    with pytest.raises(Exception, match=message):
        compiled(inputs | {name: change(inputs[name])}, CASE)


@pytest.mark.parametrize("made", [write_read, from_a_product])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_kept_state(made: Any, backend: str) -> None:
    case = CASE.but(options={"keep_state": True})
    compiled, _ = counted(made, backend)
    inputs = inputs_of(case)
    wanted = train(made, case, inputs)
    assert train(compiled, case, inputs).differs(wanted) == []
    if made is write_read:
        assert torch.equal(wanted.restored, wanted.advanced)
