"""The build stops at a remark that means slow code, and names what spills registers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools/dev/compile_device_code.py"
REMARK = (
    "ptxas info : (C7515) Potential Performance Loss: wgmma.mma_async instructions are serialized"
    " due to non wgmma instructions defining accumulator registers"
)


VERBOSE = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'gx_one' for 'sm_90a'
ptxas info    : Function properties for gx_one
    {stack} bytes stack frame, {stored} bytes spill stores, {loaded} bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers
ptxas info    : Compile time = 12.3 ms"""


def run_tool(tmp_path: Path, said: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs the tool with a compiler that says something."""
    compiler = [sys.executable, "-c", f"import sys; print({said!r}); sys.exit({status})"]
    command = [sys.executable, str(TOOL), str(tmp_path / "resources.json"), *compiler]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("said", "status", "expected"),
    [("", 0, 0), ("a warning", 0, 0), (REMARK, 0, 1), (REMARK, 3, 3)],
)
def test_slow_code_and_errors_end_the_build(tmp_path, said, status, expected):
    result = run_tool(tmp_path, said, status)
    assert result.returncode == expected
    assert said in result.stdout


@pytest.mark.parametrize(("stored", "loaded"), [(0, 0), (16, 28), (0, 4)])
def test_spills_are_named(tmp_path, stored, loaded):
    result = run_tool(tmp_path, VERBOSE.format(stack=stored, stored=stored, loaded=loaded))
    line = f"spills: gx_one, sm_90a: {stored} bytes stored, {loaded} loaded (64 registers)\n"
    assert result.returncode == 0
    assert result.stdout == (line if stored or loaded else "")
    assert json.loads((tmp_path / "resources.json").read_text()) == [
        {"name": "gx_one", "target": "sm_90a", "stored": stored, "loaded": loaded, "registers": 64}
    ]
