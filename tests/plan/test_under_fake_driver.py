"""Runs the tests of fake_driver/ in processes that find a stand-in for the CUDA driver."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from core_testing import core_testing

FOLDER = Path(__file__).parent / "fake_driver"
TESTS = {path.name for path in FOLDER.glob("test_*.py")}
# Files that need a process which has not used the driver or the BLAS yet; the others share one.
ALONE = (
    ("test_broken_driver.py",),
    ("test_early_starts.py", "test_device_launchers.py"),
    ("test_profiles.py",),
    ("test_two_blas.py",),
)
GROUPS = [sorted(TESTS.difference(*ALONE)), *ALONE]


def run(*command, **kwargs):
    result = subprocess.run(command, text=True, capture_output=True, timeout=300, **kwargs)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    """The folder with the stand-ins for libcuda.so.1 and libcublas.so."""
    if not hasattr(core_testing(), "replace_device_code"):
        pytest.skip("a host-only build has no CUDA backend to test")
    if torch.version.cuda:
        pytest.skip("torch's own CUDA libraries would meet the stand-ins")
    if not shutil.which("cmake"):
        pytest.skip("needs cmake")
    folder = tmp_path_factory.mktemp("fake_driver")
    run("cmake", "-S", FOLDER, "-B", folder)
    run("cmake", "--build", folder)
    return folder


@pytest.mark.parametrize("names", GROUPS, ids=["shared", *(names[-1] for names in ALONE)])
def test_under_the_fake_driver(libraries, names):
    path = os.pathsep.join(filter(None, [str(libraries), os.environ.get("LD_LIBRARY_PATH")]))
    environment = {**os.environ, "LD_LIBRARY_PATH": path, "SDM_FAKE_DRIVER": str(libraries)}
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    run(*command, *(FOLDER / name for name in names), env=environment)
