"""Tensors of one allocation: where they lie, and chains that are bound to them."""

from __future__ import annotations

import re

import pytest
import torch
from plan_cases import chain_operands, chain_plans

from sdm_runtime import PlanError, StepChain, _core
from sdm_runtime.format.plan_format import Dtype
from sdm_runtime.plan.template import ChainTemplate
from sdm_runtime.tensor.arena import Arena, ArenaLayout, Part
from sdm_runtime.tensor.refs import READER, operand_refs

CPU = torch.empty(0)  # beside which arenas are
ODD = [
    Part("a", torch.bfloat16, (3, 5)),
    Part("words", torch.int64, (2,), operand=False),
    Part("b", torch.float32, (7,)),
    Part("c", torch.uint8, (1, 1, 1)),
]


@pytest.mark.parametrize(("alignment", "nbytes"), [(16, 88), (256, 776)])
def test_parts_have_their_forms_and_share_no_byte(alignment, nbytes):
    layout = ArenaLayout(ODD, alignment=alignment)
    arena = layout.allocate(CPU)
    arena.memory.zero_()
    begin = arena.memory.data_ptr()
    for value, part in enumerate(ODD, 1):
        tensor = arena[part.name]
        assert (tensor.dtype, tuple(tensor.shape)) == (part.dtype, part.shape)
        assert tensor.is_contiguous()
        assert (tensor.data_ptr() - begin) % alignment == 0
        assert not tensor.any()
        tensor.fill_(value)
    for value, part in enumerate(ODD, 1):
        assert (arena[part.name] == value).all(), part.name
    assert arena.memory.nbytes == nbytes


def test_a_part_over_another_is_the_same_memory():
    under = [*ODD, Part("flat", torch.int32, (5,), over="b"), Part("d", torch.float32, (2,))]
    layout = ArenaLayout(under, alignment=16)
    arena = layout.allocate(CPU)
    assert layout.words == ArenaLayout([*ODD, under[-1]], alignment=16).words
    arena.memory.zero_()
    arena["flat"].fill_(1)
    assert arena["b"].view(torch.int32).tolist() == [1] * 5 + [0] * 2
    assert not any(arena[name].any() for name in ("a", "words", "c", "d"))
    with pytest.raises(AssertionError):  # longer than what it lies over
        ArenaLayout([*ODD, Part("long", torch.float32, (8,), over="b")], alignment=16)


def test_a_part_is_made_once_and_others_are_not_there():
    arena = ArenaLayout(ODD, alignment=16).allocate(CPU)
    assert arena["b"] is arena["b"]
    assert list(arena.operands()) == ["a", "b", "c"]
    assert arena.get("d") is None
    with pytest.raises(KeyError, match="d"):
        arena["d"]


def _by_arena(names):
    """The chain's operands, those of these names in an arena."""
    tensors = {name: tensor for name, tensor in chain_operands().items() if name != "kpay"}
    parts = [Part(name, tensors[name].dtype, tuple(tensors[name].shape)) for name in names]
    arena = ArenaLayout(parts, alignment=256).allocate(CPU)
    for name in names:
        arena[name].copy_(tensors.pop(name))
    return tensors, Arena(arena.layout, arena.memory)


@pytest.fixture
def template():
    plans = chain_plans(chain_operands())
    return ChainTemplate(StepChain(plans, plans[0].steps))


def _bound(template, names):
    tensors, arena = _by_arena(names)
    refs = operand_refs(tensors, "[chain] bind ", [arena])
    return tensors, arena, template.bind_read(tensors, refs, [arena])


NAMES = ["d_dv", "dpd", "rec", "slots"]


def test_a_chain_runs_on_parts_as_on_tensors(template):
    alone = {name: tensor for name, tensor in chain_operands().items() if name != "kpay"}
    start = {name: tensor.clone() for name, tensor in alone.items()}
    template.bind(alone).run()
    tensors, arena, chain = _bound(template, NAMES)
    chain.run()
    for name, tensor in (tensors | arena.operands()).items():
        assert torch.equal(tensor, alone[name]), name
    assert not torch.equal(alone["d_dv"], start["d_dv"])


def test_its_plans_hold_the_parts(template):
    tensors, arena, chain = _bound(template, NAMES)
    held = {name: tensor for plan in chain.plans for name, tensor in plan.tensors.items()}
    assert held.keys() == tensors.keys() | set(NAMES)
    assert all(held[name] is arena[name] for name in NAMES)
    StepChain(chain.plans, chain.steps).run()


def test_replaced_memory_is_noticed(template):
    _, arena, chain = _bound(template, NAMES)
    arena.memory.data = arena.memory.clone()
    for use in (chain.run, lambda: chain.plans):
        with pytest.raises(PlanError, match=r"\[chain\] d_dv: expected the memory"):
            use()


def test_memory_that_cannot_be_read_is_refused():
    tensors, arena = _by_arena(NAMES)
    arena.memory.untyped_storage().resize_(8)
    message = "[chain] bind d_dv, dpd, rec, slots: expected a storage of"
    with pytest.raises(ValueError, match=re.escape(message)):
        operand_refs(tensors, "[chain] bind ", [arena])


def test_a_part_is_checked_as_a_tensor_is(template):
    tensors, _ = _by_arena(NAMES)
    parts = [Part(name, torch.float32, (4,)) for name in NAMES]
    arena = ArenaLayout(parts, alignment=16).allocate(CPU)
    with pytest.raises(PlanError, match="bind slots: expected int32, got float32"):
        template.bind_read(tensors, operand_refs(tensors, "", [arena]), [arena])


def test_memory_of_another_size_is_our_mistake():
    tensors, arena = _by_arena(NAMES)
    with pytest.raises(RuntimeError, match="an arena of"):
        operand_refs(tensors, "", [Arena(arena.layout, arena.memory[1:])])


F32 = int(Dtype.FLOAT32)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ((F32, (17,), 0), "has 68 bytes from byte 0 on, of 64"),
        ((F32, (4,), 52), "has 16 bytes from byte 52 on, of 64"),
        ((F32, (4,), 2**64 - 16), "has 16 bytes from byte 18446744073709551600 on"),
        ((F32, (2**62 + 1,), 0), "has a length of 4611686018427387905"),
        ((F32, (2**32, 2**32), 0), "has a length of 4294967296"),
        ((F32, (-2, -2), 0), "has a length of -2"),
        ((F32, (4,), 2), "starts inside an element"),
        ((F32, (1,) * 65, 0), "has 65 dimensions"),
        ((0, (4,), 0), "has no known dtype"),
    ],
)
def test_a_part_outside_its_memory_is_our_mistake(part, message):
    with pytest.raises(RuntimeError, match=f"internal error.*: a {message}"):
        _core.ArenaLayout([("a", *part)], 64)


def test_a_layout_without_operands_is_our_mistake():
    with pytest.raises(RuntimeError, match="an arena without operands"):
        ArenaLayout([Part("a", torch.float32, (4,), operand=False)], alignment=16)


@pytest.mark.parametrize("given", [(), (CPU,), [CPU, CPU], CPU, None])
def test_an_arena_is_a_memory_and_a_layout(given):
    with pytest.raises(RuntimeError, match="an arena that is not a memory and a layout"):
        READER.read_all({}, [given])
