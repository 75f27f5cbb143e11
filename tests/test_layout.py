"""The layout rules, checked on the text of the files alone; each rule with a control."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAX_LINES = 500
SOURCE_SUFFIXES = {".py", ".h", ".cpp", ".cu", ".cuh", ".sh"}


def too_long(files: dict[str, str]) -> list[str]:
    counts = {name: text.count("\n") for name, text in files.items()}
    return [f"{name}: {count} lines" for name, count in counts.items() if count > MAX_LINES]


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    """Return the text of every source file, by path from the root."""
    folders = ("csrc", "sdm_runtime", "tests", "tools")
    paths = [p for folder in folders for p in sorted(ROOT.joinpath(folder).rglob("*"))]
    return {
        p.relative_to(ROOT).as_posix(): p.read_text()
        for p in paths
        if p.suffix in SOURCE_SUFFIXES and p.is_file()
    }


def test_no_file_is_too_long(sources: dict[str, str]) -> None:
    assert too_long(sources) == []
    assert too_long({"planted.h": "\n" * (MAX_LINES + 1), "short.h": "\n" * MAX_LINES}) == [
        f"planted.h: {MAX_LINES + 1} lines"
    ]


GENERATORS = [p for p in sorted(ROOT.glob("tools/gen/*.py")) if '"--check"' in p.read_text()]


def outdated(generator: Path) -> str:
    """Return what a generator says against its files; nothing when they are current."""
    words = [sys.executable, str(generator), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=generator.parents[2])
    return "" if done.returncode == 0 else done.stdout + done.stderr + "outdated"


def test_generated_files_are_current() -> None:
    assert "plan_format.py" in [path.name for path in GENERATORS]
    assert [outdated(generator) for generator in GENERATORS] == [""] * len(GENERATORS)


def test_an_outdated_file_is_found(tmp_path: Path) -> None:
    for folder, kinds in (
        ("tools", "gen/*.py"),
        ("csrc", "**/*.h"),
        ("sdm_runtime", "format/*.py"),
    ):
        for path in ROOT.joinpath(folder).glob(kinds):
            copy = tmp_path / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    generator = tmp_path / "tools/gen/plan_format.py"
    assert outdated(generator) == ""
    mirror = tmp_path / "sdm_runtime/format/plan_format.py"
    mirror.write_text(mirror.read_text().replace("0", "1", 1))
    assert outdated(generator)


def test_hooks_are_local() -> None:
    text = ROOT.joinpath(".pre-commit-config.yaml").read_text()
    assert re.findall(r"repo:\s*(\S+)", text) == ["local"]
    assert "://" not in text
