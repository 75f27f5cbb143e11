"""A remark of the assembler that means slow code stops the build."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools/compile_device_code.py"
REMARK = (
    "ptxas info : (C7515) Potential Performance Loss: wgmma.mma_async instructions are serialized"
    " due to non wgmma instructions defining accumulator registers"
)


@pytest.mark.parametrize(
    ("said", "status", "expected"),
    [("", 0, 0), ("ptxas info : Used 68 registers", 0, 0), (REMARK, 0, 1), (REMARK, 3, 3)],
)
def test_status(said, status, expected):
    compiler = [sys.executable, "-c", f"import sys; print({said!r}); sys.exit({status})"]
    result = subprocess.run(
        [sys.executable, str(TOOL), *compiler], check=False, capture_output=True, text=True
    )
    assert result.returncode == expected
    assert said in result.stdout
