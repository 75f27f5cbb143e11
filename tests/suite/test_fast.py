"""Every folder of tests is in the fast list or in the slow one, and --fast follows them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from fast import FAST, SLOW, TESTS, is_left_out


def unlisted(files: Iterable[str]) -> list[str]:
    """The folders of test files, by path below tests, that are in neither list or in both."""
    folders = {Path(name).parent.as_posix() for name in files}
    return sorted(folder for folder in folders if (folder in FAST) == (folder in SLOW))


def stale(files: Iterable[str]) -> list[str]:
    """What the lists name and is not there."""
    names = set(files)
    there = names | {Path(name).parent.as_posix() for name in names}
    return sorted({*FAST, *SLOW} - there)


@pytest.fixture(scope="module")
def files() -> list[str]:
    return [path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")]


def test_every_folder_is_listed_once(files: list[str]) -> None:
    assert unlisted(files) == []
    assert unlisted([*files, "new/test_a.py", "new/deep/test_b.py"]) == ["new", "new/deep"]


def test_the_lists_name_what_is_there(files: list[str]) -> None:
    assert stale(files) == []
    kept = [name for name in files if not name.startswith("ops/") and name != "test_readme.py"]
    assert stale(kept) == ["ops", "test_readme.py"]


def test_a_slow_file_is_in_a_fast_folder() -> None:
    slow_files = [name for name in SLOW if name.endswith(".py")]
    assert slow_files
    assert {Path(name).parent.as_posix() for name in slow_files} <= set(FAST)


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("train", True),
        ("layer/test_layer_compiled.py", True),
        ("ops/test_op_gpu.py", True),
        ("ops/test_op_runs.py", False),
        ("kernels", False),
    ],
)
def test_slow_places_and_gpu_files_are_left_out(name: str, left_out: bool) -> None:
    assert (TESTS / name).exists()
    assert is_left_out(TESTS / name) == left_out
    assert not is_left_out(Path("/elsewhere") / name)


def collected(*options: str) -> list[tuple[str, str]]:
    """The tests that pytest takes, by file below tests and function."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, cwd=TESTS.parent, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return re.findall(r"^tests/(\S+)::(\w+)", done.stdout, re.M)


def test_fast_takes_tests_of_every_fast_folder_and_nothing_slow() -> None:
    found = collected("--fast")
    taken = {name for name, _ in found}
    # Of the fake driver's folder another test starts a pytest.
    folders = {Path(name).parent.as_posix() for name in taken}
    assert folders == set(FAST) - {"plan/fake_driver"}
    assert [name for name in taken if is_left_out(TESTS / name)] == []
    assert {name for name in taken if name.split("/")[0] in SLOW} == set()
    assert ("test_typing.py", "test_the_types_are_those_of_the_names") in found
    assert ("test_typing.py", "test_every_public_name_has_a_type") not in found


def test_without_fast_everything_is_taken() -> None:
    names = ["tests/test_typing.py", "tests/layer/test_layer_compiled.py"]
    found = collected(*names)
    assert {f"tests/{name}" for name, _ in found} == set(names)
    assert ("test_typing.py", "test_every_public_name_has_a_type") in found
    assert {f"tests/{name}" for name, _ in collected("--fast", names[0])} == {names[0]}
