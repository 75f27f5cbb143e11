"""verify() finds every planted fault, names it, and finds nothing in a good file."""

import inspect_cases as cases
import pytest
from inspect_cases import FACTS
from inspect_faults import FAULTS

from sdm_runtime.inspect import decode
from sdm_runtime.inspect.verify import ERROR, verify
from sdm_runtime.inspect.verify.bindings import load_bindings
from sdm_runtime.inspect.verify.device import load_facts


def found_in(fault):
    options = {"facts": FACTS, **{name: make() for name, make in fault.options.items()}}
    return verify(decode(fault.make()), **options)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_the_planted_fault_is_found(fault):
    found = found_in(fault)
    matching = [f for f in found if (f.level, f.check) == (fault.level, fault.check)]
    assert any(fault.says in finding.message for finding in matching), found
    if fault.check != "executor":
        assert all(finding.byte is not None for finding in matching)


@pytest.mark.parametrize("fault", [f for f in FAULTS if f.level == ERROR], ids=str)
def test_one_fault_is_one_kind_of_error(fault):
    """Beside the executor's own refusal of it."""
    kinds = {f.check for f in found_in(fault) if f.level == ERROR}
    assert kinds <= {fault.check, "executor", *fault.also}


@pytest.mark.parametrize("make", [cases.host_file, cases.cuda_file])
def test_a_good_file_has_no_finding(make):
    assert verify(decode(make()), facts=FACTS) == []


def test_good_bindings_have_no_finding():
    assert verify(decode(cases.cuda_file()), facts=FACTS, bindings=cases.good_bindings()) == []


def test_a_bound_name_that_no_plan_has():
    bindings = {**cases.good_bindings(), "stray": cases.Binding(1 << 30, 4)}
    (finding,) = verify(decode(cases.cuda_file()), facts=FACTS, bindings=bindings)
    assert (finding.level, finding.subject) == ("warning", "stray")


def test_a_view_that_is_aligned_to_four_bytes_is_a_warning():
    plans = [cases.edited_reloc(p, "x", align_log2=2) if i == 1 else p
             for i, p in enumerate(cases.cuda_plans())]  # fmt: skip
    bindings = cases.changed_bindings(x=(4, 0))
    found = verify(decode(cases.chain_file(plans)), facts=FACTS, bindings=bindings)
    assert any("a view into a larger tensor?" in f.message and f.level == "warning" for f in found)


@pytest.mark.parametrize("bad", range(5))
def test_the_first_bad_step_is_found_by_halving(bad):
    """With a steep patch the extent is left from one step on, whichever that is."""
    stride = {0: 9, 1: 5, 2: 3, 3: 2, 4: 1}[bad]
    base = {0: 5, 1: 0, 2: 0, 3: 0, 4: 1}[bad]
    gemm = cases.edited_patch(cases.host_plans()[1], base=base, stride=stride, highest=1000)
    found = verify(decode(cases.with_plan(cases.host_plans(), 1, gemm)))
    steps = {f.step for f in found if f.check == "extent"}
    expected = next(ti for ti in range(5) if base + stride * ti > 4)
    assert steps == {expected}


def test_steps_below_the_operand():
    gemm = cases.edited_patch(cases.host_plans()[1], base=-2, lowest=-2)
    found = verify(decode(cases.with_plan(cases.host_plans(), 1, gemm)))
    messages = [f.message for f in found if f.check == "extent"]
    assert any("steps 0..1 of 5 leaves 'd_u'" in message for message in messages)


def test_huge_step_counts_take_no_time():
    """2^31 steps are judged by their formula."""
    plan = cases.edited(cases.host_plans()[1], cases.PlanHeader, 0, steps=(1 << 31) - 1)
    found = verify(decode(cases.with_plan(cases.host_plans(), 1, bytes(plan))))
    assert [f.check for f in found if f.level == ERROR] == ["executor"]


def test_facts_of_a_build(tmp_path):
    path = tmp_path / "device_images.json"
    path.write_text(
        '{"nvcc": "13", "images": [{"file": "a", "bytes": 1, "sha256": "ab", "kernel": "k", '
        '"entries": [{"name": "k_a", "waits": true, "triggers": true}]}]}'
    )
    facts = load_facts(path)
    assert (facts.image_of, facts.waits) == ({"k_a": "ab"}, {"k_a": True})
    path.write_text("[]")
    with pytest.raises(ValueError, match="not a build's device_images"):
        load_facts(path)
    with pytest.raises(OSError, match="none"):
        load_facts(tmp_path / "none")


def test_bindings_of_a_file(tmp_path):
    path = tmp_path / "bindings.json"
    path.write_text('{"x": {"address": 4096, "bytes": 64, "dtype": "float32"}}')
    assert load_bindings(path)["x"].bytes == 64
    for bad in ("[]", "{", '{"x": 3}', '{"x": {"address": "a"}}'):
        path.write_text(bad)
        with pytest.raises(ValueError, match="not a bindings file"):
            load_bindings(path)
