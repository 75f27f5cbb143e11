"""The layout rules, checked on the text of the files alone; each rule with a control."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
MAX_LINES = 500
SOURCE_SUFFIXES = {".py", ".h", ".cpp", ".cu", ".cuh", ".sh"}


class Rule(NamedTuple):
    """Files below ``folder`` must not include or import what ``forbidden`` matches."""

    folder: str
    forbidden: str
    reason: str
    control: str


CORE_IS_FREE = r"<?(torch|ATen|c10|pybind11)/|<?Python\.h"
RULES = [
    Rule("csrc/plancap", "kernels/", "plancap knows no kernel", '"kernels/step/gx_gemm/gx_gemm.h"'),
    Rule("csrc/plancap", "bindings/", "the core knows no binding", '"bindings/bindings.h"'),
    Rule("csrc/kernels", "bindings/", "the core knows no binding", '"bindings/bindings.h"'),
    Rule(
        "csrc/kernels",
        r"plancap/(run/|cuda/(?!driver\.h))",
        "kernels do not know the executor",
        '"plancap/run/chain.h"',
    ),
    Rule("csrc/plancap", CORE_IS_FREE, "the core is free of torch and Python", "<torch/all.h>"),
    Rule("csrc/kernels", CORE_IS_FREE, "the core is free of torch and Python", "<Python.h>"),
    Rule("csrc/bindings", r"<?(torch|ATen|c10)/", "bindings need pybind11 alone", "<c10/core.h>"),
]
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<][^">]+[">])', re.M)


def violations(rule: Rule, files: dict[str, str], statement: re.Pattern[str]) -> list[str]:
    found = []
    for name, text in files.items():
        if not (name.startswith(rule.folder + "/") or name == rule.folder + ".py"):
            continue
        for target in statement.findall(text):
            if re.match(rule.forbidden, target.lstrip('"')):
                found.append(f"{name} takes {target}: {rule.reason}")
    return found


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


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.folder}: {rule.reason}")
def test_includes(rule: Rule, sources: dict[str, str]) -> None:
    assert any(name.startswith(rule.folder) for name in sources)
    assert violations(rule, sources, INCLUDE) == []
    planted = {f"{rule.folder}/planted.h": f"#pragma once\n#include {rule.control}\n"}
    assert len(violations(rule, planted, INCLUDE)) == 1


def test_wire_format_needs_integers_alone(sources: dict[str, str]) -> None:
    allowed = {"<cstdint>", "<cstddef>", "<stdint.h>", "<stddef.h>"}
    included = set(INCLUDE.findall(sources["csrc/plancap/format/plan_format.h"]))
    assert included
    assert included <= allowed
    assert not {"<string>"} <= allowed


def test_executor_headers_are_where_the_rule_looks(sources: dict[str, str]) -> None:
    assert "csrc/plancap/run/chain.h" in sources


def test_file_lengths(sources: dict[str, str]) -> None:
    assert too_long(sources) == []
    assert too_long({"planted.h": "\n" * (MAX_LINES + 1), "short.h": "\n" * MAX_LINES}) == [
        f"planted.h: {MAX_LINES + 1} lines"
    ]


GENERATORS = [p for p in sorted(ROOT.glob("tools/gen/*.py")) if '"--check"' in p.read_text()]


def outdated(generator: Path) -> str:
    """Return what a generator says against its files; nothing when they are current."""
    words = [sys.executable, generator, "--check"]
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
