"""Edits plans field by field, reseals them, and runs what is accepted on guarded operands.

Run by test_plan_fields.py in a process of its own, so that a fault is a result and not the end of
the test run. Prints a JSON object: what became of the edits, and which single members may take
another value. With --overrun it reads past an operand on purpose.
"""

import argparse
import faulthandler
import itertools
import json
import random
import sys
from collections import Counter
from dataclasses import fields, replace

import torch
from guarded import GuardedTensor
from kernel_cases import Shape
from plan_cases import (
    chain_operands,
    chain_plans,
    forward_operands,
    forward_plans,
    from_bytes,
    params_offset,
    plan_bytes,
    records,
    reseal,
)

from sdm_runtime import PlanError, StepChain
from sdm_runtime.format.plan_format import FieldRecord
from sdm_runtime.format.records import text

SHAPES = (
    Shape(hd=36, sequences=2, chunk=4, writes=3, reads=2, steps=3),
    Shape(hd=36, sequences=2, chunk=4, writes=3, reads=2, steps=2, slots=5, few_rows=True),
    Shape(hd=130, sequences=2, chunk=3, writes=2, reads=2, steps=2, types=("f32", "int4", "f32")),
)
NUMBERS = (0, 1, 2, 3, 4, 5, 7, 8, 16, 36, 64, 255, 256, 257, 1 << 16, (1 << 31) - 1, 1 << 31)
MOST_STEPS = 64  # an accepted plan may honestly cover 2^31 steps; that many are not run here


def neighbours(value: int, size: int, signed: bool) -> set[int]:
    """Values worth trying in a field that holds ``value``."""
    bits = 8 * size
    tried = {value + d for d in (-64, -8, -1, 1, 8, 64)} | {2 * value, value // 2, -value}
    tried |= set(NUMBERS) | {(1 << bits - 1) - 1, (1 << bits) - 1, -1, -(1 << bits - 1)}
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return {number for number in tried if low <= number <= high and number != value}


def record_edits(data):
    """(member, edit, bytes) for every member of every record but the checksum, one at a time."""
    for kind, at in records(data):
        record = kind.unpack(data, at)
        for member in fields(kind):
            value = getattr(record, member.name)
            if member.name == "checksum":
                continue
            for new in member_values(kind, member.name, value):
                changed = bytearray(data)
                changed[at : at + kind.SIZE] = replace(record, **{member.name: new}).pack()
                path = f"{kind.__name__}.{member.name}"
                yield path, f"{path} = {new!r}", changed


def member_values(kind, name, value):
    size = kind.SPANS[name][1]
    if isinstance(value, bytes):
        yield from (bytes(size), b"\xff" * size, value[::-1], b"x".ljust(size, b"\0"))
        yield from (bytes([value[i] ^ 1 if i == k else value[i] for i in range(size)])
                    for k in (0, size // 2, size - 1))  # fmt: skip
    elif isinstance(value, tuple):
        for i, new in itertools.product(range(len(value)), NUMBERS[:-1]):
            yield (*value[:i], new, *value[i + 1 :])
    else:
        signed = name in ("base", "stride", "lowest", "highest")
        yield from sorted(neighbours(value, size, signed))


def param_edits(data):
    """The same for every field of the parameter block."""
    start = params_offset(data)
    for kind, at in records(data):
        if kind is not FieldRecord:
            continue
        field = FieldRecord.unpack(data, at)
        span = slice(start + field.offset, start + field.offset + field.size)
        value = int.from_bytes(data[span], "little", signed=True)
        for new in sorted(neighbours(value, field.size, signed=True)):
            changed = bytearray(data)
            changed[span] = new.to_bytes(field.size, "little", signed=True)
            name = text(field.name)
            yield name, f"{name} = {new}", changed


def random_edits(data, seed: int, count: int):
    """Several edits at once: records that agree with each other and with nothing else."""
    pick = random.Random(seed)
    single = [*record_edits(data), *param_edits(data)]
    for _ in range(count):
        names, merged = [], bytearray(data)
        for _, name, changed in pick.sample(single, pick.choice((2, 2, 3, 4))):
            names.append(name)
            for i, (old, new) in enumerate(zip(data, changed, strict=True)):
                if old != new:
                    merged[i] = new
        yield " and ".join(names), merged


class Runner:
    def __init__(self, operands):
        self._initial = {name: tensor.clone() for name, tensor in operands.items()}
        self._guarded = {name: GuardedTensor(tensor) for name, tensor in operands.items()}

    def run(self, data) -> str:
        """What became of one resealed plan."""
        try:
            plan = from_bytes(reseal(data))
        except PlanError:
            return "refused"
        names = {operand.name for operand in plan.operands}
        operands = {n: g.tensor for n, g in self._guarded.items() if n in names}
        for name, tensor in operands.items():
            tensor.copy_(self._initial[name])
        try:
            chain = StepChain([plan.bind(**operands)], min(plan.steps, MOST_STEPS))
        except PlanError:
            return "unbindable"
        chain.run()
        return "ran" if plan.steps <= MOST_STEPS else "too long"


def run_all(shape, random_count, counts, accepted):
    operands = chain_operands(shape)
    run_plans(operands, chain_plans(operands, shape), random_count, counts, accepted)
    operands = forward_operands(shape)
    read, _, write = forward_plans(operands, shape)
    operands["delta"] = operands.pop("d_u")
    run_plans(operands, [read, write], random_count, counts, accepted)


def run_plans(operands, plans, random_count, counts, accepted):
    runner = Runner({name: tensor for name, tensor in operands.items() if name != "kpay"})
    for plan in plans:
        data = plan_bytes(plan)
        single = itertools.chain(record_edits(data), param_edits(data))
        combined = ((None, *edit) for edit in random_edits(data, 7, random_count))
        for member, edit, changed in itertools.chain(single, combined):
            if changed == data:
                continue
            print(f"{plan.kernel}: {edit}", file=sys.stderr)  # the last line names the culprit
            fate = runner.run(changed)
            counts[fate] += 1
            if member and fate in ("ran", "too long"):
                accepted[member] += 1


def overrun(shape):
    tensor = next(iter(chain_operands(shape).values()))
    return GuardedTensor(tensor).read_past_the_end()


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--overrun", action="store_true")
    options.add_argument("--random", type=int, default=400, help="combined edits of each plan")
    args = options.parse_args()
    faulthandler.enable()
    torch.set_num_threads(1)
    if args.overrun:
        return overrun(SHAPES[0])
    counts: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    for shape in SHAPES:
        run_all(shape, args.random, counts, accepted)
    print(json.dumps({"counts": counts, "accepted": accepted}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
