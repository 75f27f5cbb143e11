"""What the core knows a kernel to load early is what its source says."""

import re
from pathlib import Path

import pytest

from sdm_runtime import _core
from sdm_runtime.kernels.steps import step_tables

KERNELS = Path(__file__).parents[2] / "csrc" / "kernels" / "step"
ROW = re.compile(r"^// (\w+) .*\bbefore the wait\b", re.M)


def early_of_source(text):
    """The operands that the table at the head of a kernel's source has before the wait."""
    return set(ROW.findall(text[: text.index("#pragma once")]))


@pytest.mark.parametrize("kernel", sorted(step_tables()))
def test_the_table_of_the_source(kernel):
    source = (KERNELS / kernel / f"{kernel}.cuh").read_text()
    assert early_of_source(source)
    assert set(_core.early_fields(kernel)) == early_of_source(source)


def test_only_loads_before_the_wait_count():
    head = "// a  nothing   before the wait, L1\n// b  x   after the wait\n"
    text = head + "#pragma once\n// c  x   before the wait"
    assert early_of_source(text) == {"a"}
    with pytest.raises(ValueError, match="expected a kernel's name, got none"):
        _core.early_fields("none")
