"""Edited plans whose checksum is right again: refused by what they say, or safe to run."""

import json
import signal
import subprocess
from pathlib import Path

import pytest
from child_process import run_python

SCRIPT = Path(__file__).parent / "run_edited_plans.py"

# What may differ from what the launcher recorded without harm: where the steps lie inside the
# operands, fewer steps or none, an operand that may be used in more ways or must be aligned better,
# and numbers that the kernel does not turn into addresses.
MAY_DIFFER = {
    "PatchRecord.base",
    "PatchRecord.stride",
    "PatchRecord.lowest",
    "PatchRecord.highest",
    "PlanHeader.grid",
    "PlanHeader.steps",
    "RelocRecord.access",
    "RelocRecord.align_log2",
    "num_tokens",
    "plane_stride",
    "step",
}


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return run_python(str(SCRIPT), *options)


def test_edited_plans_are_refused_or_stay_inside_their_operands():
    done = run()
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert set(result["accepted"]) == MAY_DIFFER
    assert result["counts"]["refused"] > 10_000
    assert result["counts"]["ran"] > 500


@pytest.mark.slow
def test_many_combined_edits():
    done = run("--random", "2500")
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["counts"]["ran"] > 500


def test_the_guard_pages_catch_an_overrun():
    """The control: one byte too far ends the process."""
    assert run("--overrun").returncode == -signal.SIGSEGV
