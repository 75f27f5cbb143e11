"""Which tests need a GPU: those in files named ``test_*_gpu.py``, and no others.

The option --fast is of suite/fast.py, the last lines of a run of suite/what_ran.py.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fast import leave_out_slow, pytest_addoption, pytest_ignore_collect  # noqa: F401
from what_ran import pytest_sessionstart, pytest_terminal_summary  # noqa: F401

from sdm_runtime import backends

TESTS = Path(__file__).parent


def _missing():
    if not torch.cuda.is_available():
        return "no CUDA device"
    return "" if backends()["cuda"] is True else str(backends()["cuda"])


def pytest_collection_modifyitems(items, config):
    leave_out_slow(items, config)
    on_gpu = [item for item in items if item.path.stem.endswith("_gpu")]
    missing = _missing() if on_gpu else ""
    for item in on_gpu:
        item.add_marker(pytest.mark.gpu)
        if missing:
            item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture
def threads():
    """torch's number of CPU threads to be set; afterwards it is what it was."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def in_new_process(request):
    """Runs a snippet in a process that has not used the device; its last line must say "ok"."""

    def run(code, **environment):
        paths = [str(TESTS / "kernels"), str(TESTS / "plan"), str(request.path.parent)]
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
