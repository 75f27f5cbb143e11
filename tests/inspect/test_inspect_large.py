"""Files that are large on purpose: what looking at them takes grows with their size, not faster."""

import os
import random
import time
from itertools import combinations

import pytest
from inspect_cases import cuda_plans
from plan_cases import reseal
from rich.console import Console

import sdm_runtime.inspect.verify as checks
from sdm_runtime.format.plan_format import (
    Access,
    Dtype,
    FieldRecord,
    FieldType,
    PatchKind,
    PatchRecord,
    PlanHeader,
    RelocRecord,
)
from sdm_runtime.inspect.commands.show import print_chain
from sdm_runtime.inspect.commands.steps import steps_data
from sdm_runtime.inspect.reading.files import decode
from sdm_runtime.inspect.reading.model import Operand
from sdm_runtime.inspect.reading.spans import file_spans
from sdm_runtime.inspect.verify.bindings import Binding
from sdm_runtime.inspect.verify.sweep import Span, shared_bytes

COUNT = 15_000  # pointers: a file of 2.5 MB
MOST_SECONDS = 10  # of the processor; comparing every two pointers took minutes


def large_plan(count, operand):
    """A plan of ``count`` patched pointers into ``operand(i)``: (name, offset), 64 bytes each."""
    fields = patches = relocs = b""
    for i in range(count):
        name, offset = operand(i)
        fields += FieldRecord(f"p{i}".encode(), 8 * i, 8, FieldType.POINTER, 0, bytes(6)).pack()
        patches += PatchRecord(i, PatchKind.POINTER, bytes(3), 0, 0, 0, 0).pack()
        access = Access.WRITE if i % 2 else Access.READ
        reloc = (i, Dtype.FLOAT32, access, 4, 0, name.encode(), offset, 64, 0, 0)
        relocs += RelocRecord(*reloc).pack()
    old = PlanHeader.unpack(cuda_plans()[0])
    tables = fields + patches + relocs + bytes(8 * count)
    members = {name: getattr(old, name) for name in old.SPANS}
    members |= {"param_bytes": 8 * count, "total_bytes": PlanHeader.SIZE + len(tables)}
    members |= {"num_fields": count, "num_patches": count, "num_relocs": count}
    return bytes(reseal(bytearray(PlanHeader(**members).pack() + tables)))


OPERANDS = {
    "apart": lambda i: ("rows", 64 * i),
    "all at one place": lambda i: ("rows", 0),
    "each its own": lambda i: (f"rows{i}", 0),
}


@pytest.mark.parametrize("operand", OPERANDS.values(), ids=OPERANDS)
def test_a_large_file_takes_no_longer_than_its_size(operand):
    data = large_plan(COUNT, operand)
    assert len(data) > 2_400_000
    begin = time.process_time()
    chain = decode(data)
    names = {o.name for o in chain.plans[0].operands}
    bindings = {name: Binding(1 << 30, 64 * COUNT) for name in names}
    found = checks.verify(chain, bindings=bindings)
    assert len(found) < 8 * COUNT
    assert len(steps_data(chain, [0])[0]["operands"]) == COUNT
    assert len(file_spans(chain)) > 3 * COUNT
    assert time.process_time() - begin < MOST_SECONDS


def test_a_large_file_is_shown():
    begin = time.process_time()
    chain = decode(large_plan(COUNT, OPERANDS["apart"]))
    with open(os.devnull, "w") as sink:
        print_chain(Console(file=sink), chain)
    assert time.process_time() - begin < 2 * MOST_SECONDS  # most of it rich's, for 15000 lines


def operand_at(index, name, access):
    return Operand(name, f"p{index}", Dtype.FLOAT32, access, 4, 0, 0, 0, 0, record_at=index)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("of_one_operand", [False, True])
def test_a_sweep_finds_something_wherever_every_two_would(seed, of_one_operand):
    draw = random.Random(seed)
    spans = []
    for index in range(draw.randrange(2, 9)):
        begin = draw.randrange(12)
        name = "rows" if of_one_operand else draw.choice("abc")
        operand = operand_at(index, name, draw.choice(list(Access)))
        spans.append(Span(begin, begin + draw.randrange(5), operand))

    def wrong(a, b):
        named = of_one_operand or a.operand.name != b.operand.name
        written = a.operand.writes or b.operand.writes
        return named and written and max(a.begin, b.begin) < min(a.end, b.end)

    every = [pair for pair in combinations(spans, 2) if wrong(*pair)]
    found = list(shared_bytes(spans, of_one_operand=of_one_operand))
    assert set(found) <= set(every)
    starts_inside = {max(pair, key=lambda s: (s.begin, s.operand.record_at)) for pair in every}
    assert len(found) == len(starts_inside)
