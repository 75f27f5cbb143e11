"""Which tests `make check` runs: pytest --fast, some two minutes on two cores.

Left out are tests marked slow, tests that need a GPU, and the places of SLOW.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
# A new folder of tests goes into one of the two.
FAST = (
    ".",
    "files",
    "format",
    "graphs",
    "inspect",
    "kernels",
    "layer",
    "linear",
    "machine",
    "ops",
    "plan",
    "plan/fake_driver",
    "qualify",
    "tensor",
    "tools",
)
SLOW = {
    "commands": "starts the commands and waits for them",
    "inspect/test_inspect_large.py": "large files",
    "inspect/test_inspect_status.py": "starts the command for every case",
    "inspect/test_inspect_streams.py": "starts the command for every case",
    "inspect/test_side_files.py": "starts the command for every case",
    "layer/test_layer_cache_running.py": "compiles",
    "layer/test_layer_compiled.py": "compiles",
    "layer/test_layer_empty.py": "starts processes",
    "suite": "starts pytest",
    "test_readme.py": "trains, starts processes",
    "train": "trains, starts processes",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="leave out slow tests and those of a GPU")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Slow places and GPU files are not even loaded."""
    return True if config.getoption("--fast") and is_left_out(collection_path) else None


def is_left_out(path: Path) -> bool:
    """Whether a file or folder below tests is a slow place, or only for a GPU."""
    if not path.is_relative_to(TESTS):
        return False
    return path.relative_to(TESTS).as_posix() in SLOW or path.stem.endswith("_gpu")


def leave_out_slow(items: list[pytest.Item], config: pytest.Config) -> None:
    """Deselect what is marked slow."""
    if config.getoption("--fast"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        items[:] = [item for item in items if item not in slow]
        config.hook.pytest_deselected(items=slow)
