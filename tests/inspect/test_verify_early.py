"""Launches that ask for an early start and do not get it."""

import pytest
from inspect_cases import FACTS, GEMM, GWR, PA2, chain_file, cuda_plans, edited_reloc
from plan_cases import find_reloc

import sdm_runtime.inspect.verify as checks
from sdm_runtime import _core
from sdm_runtime.format.plan_format import RelocRecord
from sdm_runtime.inspect.reading.files import decode
from sdm_runtime.inspect.verify.bindings import Binding
from sdm_runtime.inspect.verify.early import EARLY_FIELDS


def warnings(plans, *, order=0, bindings=None, steps=5):
    chain = decode(chain_file(plans, steps, order))
    found = checks.verify(chain, facts=FACTS, bindings=bindings)
    return [(f.plan, f.subject, f.level) for f in found if "before the wait" in f.message]


def renamed(plan, **names):
    for before, after in names.items():
        plan = edited_reloc(plan, before, operand=after.encode())
    return plan


def test_the_backwards_chain_starts_early_everywhere():
    for order in (0, 1):
        assert warnings(cuda_plans(), order=order) == []


def test_what_the_launch_ahead_writes_is_not_loaded_early():
    plans = list(cuda_plans())
    plans[GEMM] = renamed(plans[GEMM], d_u="snap")
    assert warnings(plans) == [(PA2, "snap", checks.WARNING)]
    assert warnings([plans[GEMM], plans[GWR], plans[PA2]]) == []  # not right ahead
    # The first plan of a step is behind the last of the step that runs before.
    assert warnings([plans[PA2], plans[GWR], plans[GEMM]], steps=1) == []


@pytest.mark.parametrize("order", [0, 1])
def test_shares_of_two_steps_are_apart(order):
    assert warnings([cuda_plans()[GEMM]], order=order) == []
    assert warnings([cuda_plans()[GEMM]] * 2, order=order) == [(1, "d_u", checks.WARNING)]


def test_bindings_say_what_shares_memory():
    plans = [cuda_plans()[GEMM], cuda_plans()[GWR]]
    apart = {"pd": Binding(1 << 20, 4096), "d_u": Binding(1 << 30, 1 << 12)}
    assert warnings(plans, bindings=apart) == []
    assert warnings(plans, bindings=apart | {"pd": Binding(1 << 30, 4096)}) == [
        (1, "pd", checks.WARNING)
    ]


@pytest.mark.parametrize(("shift", "order", "meets"), [(1, 1, True), (1, 0, False), (-1, 0, True)])
def test_the_step_that_ran_before_counts(shift, order, meets):
    """The first plan loads in step ti what the last one writes in the step before it, or not."""
    gemm = cuda_plans()[GEMM]
    first = renamed(gemm, x="other", d_u="rows")
    other = renamed(gemm, x="more", d_u="shifted")
    reloc = RelocRecord.unpack(gemm, find_reloc(gemm, "d_u"))
    at = {"rows": 1 << 30, "shifted": (1 << 30) + shift * reloc.step_stride}
    bindings = {name: Binding(address, reloc.extent) for name, address in at.items()}
    found = warnings([first, cuda_plans()[GWR], other], order=order, bindings=bindings)
    assert found == ([(0, "rows", checks.WARNING)] if meets else [])


def test_the_table_is_the_cores():
    cores = {name: set(_core.early_fields(name)) for name in _core.kernel_names()}
    assert {name: fields for name, fields in cores.items() if fields} == EARLY_FIELDS
