"""Everything here needs a CUDA device and the CUDA build."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sdm_runtime import backends

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "kernels"), str(TESTS / "device")]  # the cases and checks of both

REASON = "" if torch.cuda.is_available() else "no CUDA device"
if not REASON and backends()["cuda"] is not True:
    REASON = str(backends()["cuda"])


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(item.fspath).parent != Path(__file__).parent:
            continue
        item.add_marker(pytest.mark.gpu)
        if REASON:
            item.add_marker(pytest.mark.skip(reason=REASON))


@pytest.fixture
def in_new_process():
    """Runs a snippet in a process that has not used the device; its last line must say "ok"."""

    def run(code, **environment):
        import os

        paths = [str(TESTS / "kernels"), str(TESTS / "device"), str(TESTS / "gpu")]
        preamble = f"import sys; sys.path[:0] = {paths!r}\n"
        result = subprocess.run(
            [sys.executable, "-c", preamble + code],
            env={**os.environ, **environment},
            text=True,
            capture_output=True,
            timeout=300,
        )
        output = result.stdout + result.stderr
        assert result.returncode == 0, output
        assert result.stdout.splitlines()[-1] == "ok", output

    return run
