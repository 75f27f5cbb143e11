"""`torch.ops.sdm_runtime.write_read`: as the function, checked by torch, and without memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from compiled_cases import NAMES, inputs_of, train, write_read
from op_cases import DIFFERENTIABLE, Case, beside
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.library import opcheck
from torch.utils._python_dispatch import TorchDispatchMode

from sdm_runtime.ops.call.staging import Inputs
from sdm_runtime.ops.traced.parts import Sizes

OPS = torch.ops.sdm_runtime
CASE = Case(T=40, hd=8)
KINDS = {
    "plain": CASE,
    "short": CASE.but(T=5),
    "chunks": CASE.but(T=100, C=32),
    "bf16": CASE.but(dtype=torch.bfloat16),
    "bf16 rows": CASE.but(options={"snapshot_quant": "bf16"}),
    "fp8 rows": CASE.but(options={"snapshot_quant": "fp8"}),
    "int4 rows": CASE.but(options={"snapshot_quant": "int4"}),
    "slices": CASE.but(hd=320, dtype=torch.bfloat16),
}


def operator(inputs: dict[str, Tensor], case: Case) -> Tensor:
    tensors = [inputs[name] for name in NAMES]
    result: Tensor = OPS.write_read(*tensors, **numbers(case), **case.options)
    return result


def numbers(case: Case) -> dict[str, Any]:
    return {"chunk_size": case.C, "num_memory_slots": case.S, "num_parallel": case.P}


def options(case: Case) -> dict[str, Any]:
    """All of them, as the two parts take them."""
    given = {"snapshot_quant": "none", "grad_bank_fp32": False, "gemm": "auto"}
    return numbers(case) | given | {"shared_bank": False} | case.options


def saving(inputs: dict[str, Tensor], case: Case) -> tuple[Tensor, ...]:
    made: tuple[Tensor, ...] = OPS.write_read_saving(
        *(inputs[name] for name in NAMES), **options(case)
    )
    return made


def sizes(inputs: dict[str, Tensor], case: Case) -> dict[str, Any]:
    return Sizes.of(Inputs(*(inputs[name] for name in NAMES[1:])), options(case))._asdict()


@pytest.mark.parametrize("bank_grad", [True, False])
def test_it_is_the_function(bank_grad: bool) -> None:
    inputs = inputs_of(CASE)
    wanted = train(write_read, CASE, inputs, bank_grad=bank_grad)
    assert train(operator, CASE, inputs, bank_grad=bank_grad).differs(wanted) == []
    other = train(operator, CASE, inputs_of(CASE.but(seed=1)), bank_grad=bank_grad)
    assert "readings" in other.differs(wanted)
    with torch.no_grad():
        assert torch.equal(operator(inputs, CASE), wanted.readings)
        assert torch.equal(inputs["memory"], wanted.advanced)


def test_it_has_the_defaults_of_the_function() -> None:
    case = Case(P=1, S=40, T=70, C=64, hd=8)
    given, wanted = inputs_of(case), inputs_of(case)
    wanted_readings = write_read(wanted, case)
    assert torch.equal(OPS.write_read(*given.values(), num_memory_slots=40), wanted_readings)


def test_it_takes_leases_as_the_function_does() -> None:
    inputs = inputs_of(CASE)
    inputs["v"].requires_grad_()
    first, second = operator(inputs, CASE), operator(inputs, CASE)
    with pytest.raises(RuntimeError, match=r"^\[sdm_write_read\] memory: expected the bank as"):
        first.sum().backward()
    second.sum().backward()
    first.sum().backward()


class Names(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_mode_that_looks_on_sees_it() -> None:
    inputs = inputs_of(CASE)
    wanted = train(write_read, CASE, inputs)
    with Names() as names:
        readings = operator({name: x.clone() for name, x in inputs.items()}, CASE)
    assert "sdm_runtime.write_read.default" in names.seen
    assert torch.equal(readings, wanted.readings)
    with Names():  # with a gradient it is the function, and its lease is taken
        assert train(operator, CASE, inputs).differs(wanted) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("grad", [False, True])
def test_torch_finds_nothing_wrong_with_it(kind: str, grad: bool) -> None:
    case, inputs = KINDS[kind], inputs_of(KINDS[kind])
    for name in DIFFERENTIABLE[1:]:  # a leaf in place of the bank is what torch's checks refuse
        inputs[name].requires_grad_(grad)
    opcheck(OPS.write_read.default, tuple(inputs.values()), numbers(case) | case.options)


@pytest.mark.parametrize("kind", KINDS)
def test_torch_finds_nothing_wrong_with_its_parts(kind: str) -> None:
    case, inputs = KINDS[kind], inputs_of(KINDS[kind])
    tests = ["test_schema", "test_autograd_registration", "test_faketensor"]
    # The forward's last test would compare the bits of what nobody writes or reads.
    tensors = tuple(inputs.values())
    opcheck(OPS.write_read_saving.default, tensors, options(case), test_utils=tests)
    readings, *saved = saving(inputs, case)
    given = (inputs["memory"], *saved, torch.randn(readings.shape).to(readings))
    tests.append("test_aot_dispatch_dynamic")
    opcheck(OPS.write_read_backward.default, given, sizes(inputs, case), test_utils=tests)


def on_meta(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: x.to("meta") for name, x in inputs.items()}


def in_fake_mode(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    mode = FakeTensorMode()
    return {name: mode.from_tensor(x) for name, x in inputs.items()}


WITHOUT_MEMORY: dict[str, Callable[[dict[str, Tensor]], dict[str, Tensor]]] = {
    "meta": on_meta,
    "fake": in_fake_mode,
}


def form(x: Tensor) -> tuple[Any, ...]:
    return x.shape, x.dtype, x.stride()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", WITHOUT_MEMORY)
def test_tensors_without_memory_give_the_forms(how: str, kind: str) -> None:
    case, inputs = KINDS[kind], inputs_of(KINDS[kind])
    inputs["v"] = beside(inputs["v"], 2)
    unreal = WITHOUT_MEMORY[how](inputs)
    wanted, given = saving(inputs, case), saving(unreal, case)
    assert [form(x) for x in given] == [form(x) for x in wanted]
    real = train(write_read, case, inputs)
    for name in DIFFERENTIABLE:
        unreal[name] = unreal[name].detach().requires_grad_()
    readings = write_read(unreal, case)
    assert form(readings) == form(real.readings)
    readings.sum().backward()
    assert {name: form(unreal[name].grad) for name in DIFFERENTIABLE} == {
        name: form(grad) for name, grad in real.grads.items()
    }


def test_a_saved_tensor_of_another_call_is_refused() -> None:
    inputs = inputs_of(CASE)
    before = inputs["memory"].clone()
    readings, *saved = saving(inputs, CASE)
    advanced = inputs["memory"].clone()
    for i, x in enumerate(saved):
        if x.numel():
            others = [*saved[:i], x[:-1], *saved[i + 1 :]]
            with pytest.raises(ValueError, match=r"backward: expected the saved \w+ as the forw"):
                OPS.write_read_backward(inputs["memory"], *others, readings, **sizes(inputs, CASE))
    assert torch.equal(inputs["memory"], advanced)
    OPS.write_read_backward(inputs["memory"], *saved, readings, **sizes(inputs, CASE))
    assert torch.equal(inputs["memory"], before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gates": 3}, "gates: expected 1 or 4, got 3"),
        ({"num_memory_slots": 80}, "memory: expected a contiguous bank of 160 rows"),
        ({"k_val_dtype": torch.int32}, "k_val: expected a floating dtype"),
        ({"heads": 1 << 20}, "grad_readings: expected 0 floating numbers"),
    ],
)
def test_a_backward_of_other_numbers_is_refused(changes: dict[str, Any], message: str) -> None:
    """The chain would write where the bank has no rows, or fail behind its writes."""
    inputs = inputs_of(CASE)
    bank = inputs["memory"].detach()
    readings, *saved = saving({k: x.detach() for k, x in inputs.items()} | {"memory": bank}, CASE)
    advanced = bank.clone()
    given = sizes(inputs, CASE) | changes
    with pytest.raises((ValueError, TypeError), match=message):
        OPS.write_read_backward(bank, *saved, torch.ones_like(readings), **given)
    assert torch.equal(bank, advanced)


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("run", [write_read, operator])
def test_a_tracer_writes_it_down(run: Callable[..., Tensor], mode: Any) -> None:
    inputs = inputs_of(CASE)

    def call(*tensors: Tensor) -> Tensor:
        return run(dict(zip(NAMES, tensors, strict=True)), CASE)

    traced = make_fx(call, tracing_mode=mode)(*(x.clone() for x in inputs.values()))
    nodes = [str(node.target) for node in traced.graph.nodes if node.op == "call_function"]
    assert nodes == ["sdm_runtime.write_read.default"]
    bank = inputs["memory"].clone()
    readings = traced(bank, *list(inputs.values())[1:])
    assert torch.equal(readings, run(inputs, CASE))
    assert torch.equal(bank, inputs["memory"])


TRANSFORMS: dict[str, Callable[[Callable[[Tensor], Tensor], Tensor], Any]] = {
    "grad": lambda f, v: torch.func.grad(f)(v),
    "vjp": lambda f, v: torch.func.vjp(f, v)[1](torch.ones(())),
    "vmap": lambda f, v: torch.func.vmap(f)(torch.stack([v, v])),
    "jvp": lambda f, v: torch.func.jvp(f, (v,), (torch.ones_like(v),)),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("way", ["operator", "compiled", "compiled operator"])
def test_function_transforms_are_refused(way: str, transform: str) -> None:
    torch._dynamo.reset()
    inputs = inputs_of(CASE)
    before = inputs["memory"].clone()
    run = operator if "operator" in way else write_read

    def transformed(v: Tensor) -> Any:
        return TRANSFORMS[transform](lambda v: run(inputs | {"v": v}, CASE).sum(), v)

    if "compiled" in way:
        transformed = torch.compile(transformed, backend="aot_eager", fullgraph=True)
    expected = r"\[sdm_write_read\] .*expected .* outside of\W+torch.func"
    with pytest.raises(Exception, match=expected):
        transformed(inputs["v"])
    assert torch.equal(inputs["memory"], before)
