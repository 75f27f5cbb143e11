"""Which C++ sources include which; every rule with an include that it must find."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from rooms import Rooms

CSRC = Path(__file__).parents[1] / "csrc"
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<][^">]+[">])', re.M)

Includes = dict[str, set[str]]  # by file, paths from csrc: what it includes


class Rule(NamedTuple):
    """Files below ``folder`` must not include or import what ``forbidden`` matches."""

    folder: str
    forbidden: str
    reason: str
    control: str


CORE_IS_FREE = r"<?(torch|ATen|c10|pybind11)/|<?Python\.h"
RULES = [
    Rule("plancap", "kernels/", "plancap knows no kernel", '"kernels/step/gx_gemm/gx_gemm.h"'),
    Rule("plancap", "bindings/", "the core knows no binding", '"bindings/bindings.h"'),
    Rule("kernels", "bindings/", "the core knows no binding", '"bindings/bindings.h"'),
    Rule(
        "kernels",
        r"plancap/(run/|cuda/(?!driver\.h))",
        "kernels do not know the executor",
        '"plancap/run/chain.h"',
    ),
    Rule("plancap", CORE_IS_FREE, "the core is free of torch and Python", "<torch/all.h>"),
    Rule("kernels", CORE_IS_FREE, "the core is free of torch and Python", "<Python.h>"),
    Rule("bindings", r"<?(torch|ATen|c10)/", "bindings need pybind11 alone", "<c10/core.h>"),
]
# The folders that a build without SDM_TESTING lacks.
TESTING = ("testing/", "bindings/testing/")

ROOMS = [
    Rooms("plancap", "/", (("base",), ("format",), ("capture",), ("run",), ("cuda",))),
    Rooms(
        "kernels/common",
        "/",
        (("math",), ("ptx",), ("rows",), ("records",), ("host", "launch")),
    ),
]
# Kernels that include another one: (the kernel, the other one).
SHARED: set[tuple[str, str]] = {("linear/bf16_linear_group", "linear/bf16_linear")}


def read_includes(text: str) -> set[str]:
    return {target.strip('"') for target in INCLUDE.findall(text)}


def violations(rule: Rule, includes: Includes) -> list[str]:
    return [
        f"{name} takes {target}: {rule.reason}"
        for name, targets in includes.items()
        if name.startswith(rule.folder + "/")
        for target in sorted(targets)
        if re.match(rule.forbidden, target)
    ]


def kernel_of(path: str) -> str | None:
    """ "step/gx_gemm" of a file of that kernel; None of common ones and of others."""
    found = re.match(r"kernels/((?!common/)\w+/\w+)/", path)
    return found[1] if found else None


def meetings(includes: Includes) -> set[tuple[str, str]]:
    """Kernels of which one includes the other, and common files (as "") that include a kernel."""
    return {
        (kernel_of(name) or "", there)
        for name, targets in includes.items()
        if kernel_of(name) or name.startswith("kernels/common/")
        for target in targets
        if (there := kernel_of(target)) and there != kernel_of(name)
    }


def names_cuda(text: str) -> list[str]:
    return re.findall(r"\bcuda::|namespace cuda\b|\bSDM_WITH_CUDA\b|\bCU[a-z]\w+", text)


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    paths = [path for path in sorted(CSRC.rglob("*")) if path.suffix in SUFFIXES]
    return {path.relative_to(CSRC).as_posix(): path.read_text() for path in paths}


@pytest.fixture(scope="module")
def includes(texts: dict[str, str]) -> Includes:
    return {name: read_includes(text) for name, text in texts.items()}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.folder}: {rule.reason}")
def test_folders_know_only_theirs(rule: Rule, includes: Includes) -> None:
    assert any(name.startswith(rule.folder) for name in includes)
    assert violations(rule, includes) == []
    planted = {
        f"{rule.folder}/planted.h": read_includes(f"#pragma once\n#include {rule.control}\n")
    }
    assert len(violations(rule, planted)) == 1


@pytest.mark.parametrize("rooms", ROOMS, ids=lambda rooms: rooms.whole)
def test_rooms_point_one_way(rooms: Rooms, includes: Includes) -> None:
    folders = {name.rpartition("/")[0] + "/" for name in includes}
    assert {f"{rooms.whole}/{room}/" for rank in rooms.ranks for room in rank} == {
        folder for folder in folders if rooms.room_of(folder)
    }
    assert rooms.violations(includes) == []


@pytest.mark.parametrize("rooms", ROOMS, ids=lambda rooms: rooms.whole)
def test_planted_steps_up_and_aside_are_found(rooms: Rooms) -> None:
    for room, other in rooms.forbidden_steps():
        given = read_includes(f'  # include "{rooms.whole}/{other}/x.h"  // why\n')
        assert len(rooms.violations({f"{rooms.whole}/{room}/planted.cuh": given})) == 1
        assert rooms.violations({f"{rooms.whole}/{other}/planted.cuh": given}) == []


def test_only_the_cuda_room_of_plancap_names_cuda(texts: dict[str, str]) -> None:
    """Comments apart, which say what an address stands for."""
    code = {name: re.sub(r"//.*", "", text) for name, text in texts.items()}
    naming = {name for name, text in code.items() if names_cuda(text)}
    assert "plancap/cuda/cuda_backend.cpp" in naming
    assert "bindings/module.cpp" in naming
    (plancap,) = (rooms for rooms in ROOMS if rooms.whole == "plancap")
    assert plancap.rooms_of(naming) == {"cuda"}
    forward = "namespace cuda {\nclass SharedWindow;\n}"
    assert names_cuda(forward)
    assert names_cuda("std::shared_ptr<cuda::SharedWindow> window_; CUstream stream_;")
    assert not names_cuda("Backend::kCuda, DeviceKind::kCuda, register_cuda(backend)")


def test_kernels_do_not_know_each_other(includes: Includes) -> None:
    assert len({kernel_of(name) for name in includes}) > 10
    assert meetings(includes) == SHARED


def test_kernels_that_meet_are_found() -> None:
    gemm = {"kernels/step/gx_gemm/gx_gemm.h"}
    planted: Includes = {
        "kernels/step/gx_pa2/gx_pa2.cuh": gemm,
        "kernels/chunk/chunk_prepare/inst/chunk_prepare.cu": gemm,
        "kernels/common/launch/step_launch.h": gemm,
        "kernels/step/gx_gemm/inst/gx_gemm_any.cu": gemm,
        "kernels/register_kernels.cpp": gemm,
        "bindings/bind_kernels.cpp": gemm,
    }
    others = ("step/gx_pa2", "chunk/chunk_prepare", "")
    assert meetings(planted) == {(other, "step/gx_gemm") for other in others}


def test_wire_format_needs_integers_alone(includes: Includes) -> None:
    allowed = {"<cstdint>", "<cstddef>", "<stdint.h>", "<stddef.h>"}
    included = includes["plancap/format/plan_format.h"]
    assert included
    assert included <= allowed
    assert not {"<string>"} <= allowed


def test_executor_headers_are_where_the_rule_looks(includes: Includes) -> None:
    assert "plancap/run/chain.h" in includes


def users_of_testing(includes: Includes) -> list[str]:
    return [
        name
        for name, targets in includes.items()
        if not name.startswith(TESTING) and any(target.startswith(TESTING) for target in targets)
    ]


def test_nothing_that_ships_includes_what_tests_use(includes: Includes) -> None:
    assert all(any(name.startswith(folder) for name in includes) for folder in TESTING)
    assert users_of_testing(includes) == []
    planted: Includes = {
        "kernels/a.cpp": {"testing/walk.h"},
        "bindings/module.cpp": {"bindings/testing/bind_hooks.h"},
        "bindings/testing/b.cpp": {"testing/walk.h"},
    }
    assert users_of_testing(planted) == ["kernels/a.cpp", "bindings/module.cpp"]
