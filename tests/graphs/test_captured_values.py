"""What a captured step makes of its inputs and outputs; on the CPU."""

import collections
import dataclasses
from types import SimpleNamespace
from typing import NamedTuple

import numpy
import pytest
import torch
from torch.utils import _pytree as pytree

from sdm_runtime.graphs.values import CapturedInputs, check_outputs, copied_out, holds_tensors

WHERE = "[capture_step]"


@dataclasses.dataclass
class Batch:
    x: torch.Tensor


@dataclasses.dataclass
class Registered:
    x: torch.Tensor


pytree.register_dataclass(Registered)


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


class Pair(NamedTuple):
    a: object
    b: object


HIDING = {
    "dataclass": Batch,
    "object": lambda x: SimpleNamespace(x=x),
    "slots": Slotted,
    "set": lambda x: {x},
    "user dict": lambda x: collections.UserDict(x=x),
    "user list": lambda x: collections.UserList([x]),
    "array of objects": lambda x: numpy.array([[x, None]], dtype=object),
    "deep": lambda x: SimpleNamespace(parts=[{"a": Batch(x)}]),
}
KNOWN = {
    "tuple": lambda x: (x, 1),
    "list": lambda x: [x],
    "dict": lambda x: {"b": x, "a": [x + 1]},
    "named tuple": lambda x: Pair(x, None),
    "deque": lambda x: collections.deque([x]),
    "ordered": lambda x: collections.OrderedDict(x=x),
    "registered": Registered,
    "return type": lambda x: torch.max(x[None], 0),
}


def captured(*examples):
    return CapturedInputs(WHERE, examples)


def run(inputs, fn, *given):
    """What a call of the captured step does, without a graph."""
    leaves = inputs.leaves_of(given)
    inputs.copy_in(leaves)
    out = fn(*inputs.arguments())
    inputs.write_back(leaves)
    return copied_out(out)


@pytest.mark.parametrize("make", HIDING.values(), ids=HIDING)
def test_a_container_that_hides_tensors_is_refused_by_name(make):
    value = make(torch.ones(2))
    assert holds_tensors(value)
    with pytest.raises(TypeError, match=f"input 1.*got a {type(value).__name__} that holds"):
        captured(3, value)
    with pytest.raises(TypeError, match=f"fn: .*got a {type(value).__name__} that holds tensors"):
        check_outputs(WHERE, {"out": [value]})
    if not isinstance(value, set):
        empty = make("no tensor")
        assert not holds_tensors(empty)
        check_outputs(WHERE, empty)


@pytest.mark.parametrize("make", KNOWN.values(), ids=KNOWN)
def test_tensors_in_known_containers_are_copied(make):
    x = torch.arange(4.0)
    inputs = captured(make(x))
    given = make(torch.full((4,), 7.0))
    (argument,) = inputs.arguments()
    assert type(argument) is type(given)
    out = run(inputs, lambda value: value, given)
    assert type(out) is type(given)
    wanted = [leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, torch.Tensor)]
    for inside, left, right in zip(
        [leaf for leaf in pytree.tree_leaves(argument) if isinstance(leaf, torch.Tensor)],
        [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)],
        wanted,
        strict=True,
    ):
        assert torch.equal(left, right)
        assert left.data_ptr() not in (inside.data_ptr(), right.data_ptr())
    check_outputs(WHERE, out)


def test_outputs_are_not_overwritten_by_the_next_call():
    inputs = captured([torch.zeros(2)])
    first = run(inputs, collections.deque, [torch.ones(2)])
    run(inputs, collections.deque, [torch.full((2,), 5.0)])
    assert torch.equal(first[0], torch.ones(2))


def test_an_input_that_the_step_writes_is_written_back():
    def step(bank, x):
        bank["rows"].add_(x)
        return x * 2

    bank, x = {"rows": torch.zeros(3), "other": torch.ones(3)}, torch.ones(3)
    inputs = captured(bank, x)
    inputs.before_capture()
    step(*inputs.arguments())
    inputs.after_capture()
    assert torch.equal(bank["rows"], torch.zeros(3))  # a capture leaves its examples alone
    version = bank["other"]._version
    for calls in (1, 2):
        run(inputs, step, bank, x)
        assert torch.equal(bank["rows"], torch.full((3,), float(calls)))
    assert bank["other"]._version == version
    bank["rows"] = torch.zeros(1).expand(3)
    with pytest.raises(ValueError, match=r"input 0\['rows'\]: .* since the step writes it"):
        inputs.leaves_of((bank, x))


SAME = [
    (float("nan"), float("nan")),
    (complex("nan"), complex("nan")),
    ("text", "text"),
    (None, None),
    (numpy.arange(3), numpy.arange(3)),
    (numpy.array([numpy.nan]), numpy.array([numpy.nan])),
    (numpy.float32(2), numpy.float32(2)),
    ({1, 2}, {2, 1}),
]
OTHER = [
    (0.0, -0.0),
    (1, 1.0),
    (1, True),
    (float("nan"), 1.0),
    (complex(0, float("nan")), complex(1, float("nan"))),
    (numpy.arange(3), numpy.arange(4)),
    (numpy.arange(3), numpy.arange(3.0)),
    (numpy.arange(3), numpy.array([0, 1, 5])),
    ({1, 2}, {1}),
]


@pytest.mark.parametrize(("mine", "given"), SAME)
def test_the_captured_value(mine, given):
    captured(mine).leaves_of((given,))


@pytest.mark.parametrize(("mine", "given"), OTHER)
def test_another_value_is_refused(mine, given):
    with pytest.raises(ValueError, match="input 0: expected the captured value"):
        captured(mine).leaves_of((given,))


def test_a_value_that_changes_afterwards_is_noticed():
    for value, change in (
        (numpy.zeros(2), lambda v: v.fill(1)),
        ({1}, lambda v: v.add(2)),
        (bytearray(2), lambda v: v.append(1)),
    ):
        inputs = captured(value)
        inputs.leaves_of((value,))
        change(value)
        with pytest.raises(ValueError, match="expected the captured value"):
            inputs.leaves_of((value,))


def test_modules_and_optimizers_are_known_by_identity():
    module = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(module.parameters())
    inputs = captured(module, optimizer)
    assert inputs.arguments() == (module, optimizer)
    inputs.leaves_of((module, optimizer))
    with pytest.raises(ValueError, match="input 0: expected the captured value"):
        inputs.leaves_of((torch.nn.Linear(2, 2), optimizer))


def test_another_structure_is_refused():
    inputs = captured([torch.ones(2)], torch.ones(2))
    for given, message in (
        (([], torch.ones(2)), "input 0: expected a TreeSpec"),
        (([torch.ones(2)], [torch.ones(2)]), "input 1: expected a tensor, got a TreeSpec"),
        (([torch.ones(2)], 3), "input 1: expected a tensor, got int"),
        (([torch.ones(3)], torch.ones(2)), r"input 0\[0\]: expected float32 \[2\]"),
        (([torch.ones(2)],), "expected the 2 inputs it was captured with, got 1"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            inputs.leaves_of(given)


def test_an_object_that_holds_itself_has_an_end():
    loop = SimpleNamespace()
    loop.me = [loop]
    assert not holds_tensors(loop)
    loop.x = torch.ones(1)
    assert holds_tensors(loop)
