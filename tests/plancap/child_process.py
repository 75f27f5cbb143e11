"""Python in another process, on the package that this process tests, wherever that was built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import sdm_runtime

_HERE = Path(__file__).parent
_FOLDERS = (Path(sdm_runtime.__file__).parents[1], _HERE, _HERE.parent / "kernels")


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``python arguments``; the helpers of these tests can be imported."""
    path = os.pathsep.join([*map(str, _FOLDERS), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-P", *arguments],  # -P: not the package of the current folder
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
