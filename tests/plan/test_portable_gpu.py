"""The portable device code, as a GPU without programmatic launch runs it, on whatever GPU is here.

SDM_DEVICE_PROFILE=a100 makes the runtime load the PTX of compute_80 and choose its routes. The
profile is chosen once per process, so the tests run in one of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# The driver compiles every kernel family's PTX on its first load: minutes, where no cache has it.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

KERNELS = Path(__file__).resolve().parents[1] / "kernels"


def run_tests(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    command += ["--timeout=900"]
    # The driver's cache of compiled PTX at its largest: no family pushes another one out.
    environment = os.environ | {"SDM_DEVICE_PROFILE": "a100", "CUDA_CACHE_MAXSIZE": str(2**32 - 1)}
    return subprocess.run(
        command,
        cwd=KERNELS.parents[1],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "tests",
    [
        ("test_steps_gpu.py", "width_gives or of_gemm or test_many_entries or test_groups"),
        ("test_steps_gpu.py", "of_pa2 or test_addresses or test_plane_reduce"),
        ("test_chains_gpu.py", "same_bits and not early"),  # early launches do not exist there
    ],
    ids=["kernels", "pa2", "chain"],
)
def test_other_profiles_give_the_same_bits(tests: tuple[str, str]) -> None:
    done = run_tests(str(KERNELS / tests[0]), "-k", tests[1])
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


def test_early_launches_are_refused() -> None:
    done = run_tests(str(KERNELS / "test_chains_gpu.py"), "-k", "every_row_type")
    assert done.returncode == 1
    assert "pdl: expected False" in done.stdout
