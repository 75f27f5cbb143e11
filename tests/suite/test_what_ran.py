"""A run ends by saying how many tests ran and which kinds of test this machine cannot run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SAMPLE = """
import pytest

def test_passes(): pass

@pytest.mark.parametrize("n", range(3))
@pytest.mark.skip(reason="no CUDA device")
def test_needs_a_device(n): raise AssertionError

@pytest.fixture
def library(): pytest.skip("needs cuda-python")

def test_needs_a_library(library): raise AssertionError

def test_skips_itself(): pytest.skip("no CUDA device")

@pytest.mark.xfail(strict=True)
def test_is_expected_to_fail(): raise AssertionError

@pytest.fixture
def broken():
    yield
    raise RuntimeError

def test_fails(): raise AssertionError
def test_passes_and_cannot_end(broken): pass
"""


def run(folder: Path, *files: str, **environment: str) -> str:
    """What pytest says of test files with the plugin and without the project's settings."""
    for number, text in enumerate(files):
        (folder / f"test_sample_{number}.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "what_ran", "-p", "no:cacheprovider"]
    return said([*command, str(folder)], {"PYTHONPATH": str(Path(__file__).parent), **environment})


def said(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode in (0, 1, 5), done.stdout + done.stderr
    return done.stdout


def test_what_ran_and_what_cannot_is_said(tmp_path: Path) -> None:
    output = run(tmp_path, SAMPLE)
    assert re.search(
        r"= what ran =+\n"
        r"4 tests ran, in 0 min \d+ s\n"
        r"5 tests cannot run here \(-rs lists them\): no CUDA device: 4; needs cuda-python: 1\n",
        output,
    ), output
    assert "2 passed, 5 skipped, 1 xfailed" in output  # pytest counts alike


def test_nothing_is_missing_where_everything_runs(tmp_path: Path) -> None:
    output = run(tmp_path, "def test_passes(): pass")
    assert re.search(r"^1 test ran, in 0 min \d+ s$", output, re.M), output
    assert "cannot run" not in output


def test_a_file_that_is_skipped_whole_is_no_test(tmp_path: Path) -> None:
    whole = "import pytest\npytest.importorskip('no_such_module', reason='needs a module')\n"
    output = run(tmp_path, whole + "def test_a(): pass\ndef test_b(): pass\n")
    assert "0 tests ran" in output
    assert "0 tests cannot run here (-rs lists them): needs a module: 1 whole file\n" in output


def test_the_suite_says_it_where_there_is_no_device() -> None:
    path = TESTS / "linear/test_linear_bits_gpu.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)]
    output = said(command, {"CUDA_VISIBLE_DEVICES": ""})
    assert re.search(r"^0 tests ran", output, re.M), output
    assert re.search(r"^\d{3} tests cannot run here .*: no CUDA device: \d{3}$", output, re.M)
    assert "SKIPPED" not in output


def loads_or_not(text: str) -> list[str]:
    """What skips a whole file while it loads, so that its tests are not counted."""
    return re.findall(r"^pytest\.(?:importorskip|skip)\(.*|^.*allow_module_level.*", text, re.M)


def test_no_file_hides_how_many_tests_it_skips() -> None:
    texts = {path.name: path.read_text() for path in TESTS.rglob("test_*.py")}
    del texts[Path(__file__).name]
    assert {name: found for name, text in texts.items() if (found := loads_or_not(text))} == {}


@pytest.mark.parametrize(
    "planted", ["pytest.importorskip('x')", "if 1:\n    pytest.skip('x', allow_module_level=True)"]
)
def test_a_file_that_hides_its_tests_is_found(planted: str) -> None:
    assert len(loads_or_not(f"import pytest\n{planted}\n")) == 1
    assert loads_or_not("def test_a():\n    pytest.importorskip('x')\n") == []
