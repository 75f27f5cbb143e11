"""What only tests use is built for them alone, and its absence is said by name."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from core_testing import MISSING, core_testing

from sdm_runtime import _core

ROOT = Path(__file__).parents[1]
SOURCES = ("csrc/testing/", "csrc/bindings/testing/")


def built_with(state: str, monkeypatch: pytest.MonkeyPatch, asked: str | None = None) -> str:
    """SDM_TESTING as scikit-build-core passes it to CMake."""
    reader = pytest.importorskip("scikit_build_core.settings.skbuild_read_settings")
    monkeypatch.delenv("SKBUILD_CMAKE_DEFINE", raising=False)
    if asked is not None:
        monkeypatch.setenv("SKBUILD_CMAKE_DEFINE", asked)
    monkeypatch.chdir(ROOT)
    read = reader.SettingsReader.from_file("pyproject.toml", {}, state=state)
    return str(read.settings.cmake.define["SDM_TESTING"])


def test_wheels_do_not_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert built_with("wheel", monkeypatch) == "OFF"
    assert built_with("editable", monkeypatch) == "ON"
    assert built_with("editable", monkeypatch, "SDM_CUDA=OFF") == "ON"


def test_any_build_can_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert built_with("wheel", monkeypatch, "SDM_TESTING=ON") == "ON"
    assert built_with("wheel", monkeypatch, "SDM_CUDA=OFF;SDM_TESTING=ON") == "ON"


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["-DSDM_TESTING=OFF"], ["-DSDM_TESTING=ON"]])
def test_cmake_builds_it_where_it_is_asked_for(options: list[str], tmp_path: Path) -> None:
    if not shutil.which("cmake") or not shutil.which("ninja"):
        pytest.skip("needs cmake and ninja")
    pybind11 = pytest.importorskip("pybind11")
    words = [
        "cmake",
        "-S",
        str(ROOT),
        "-B",
        str(tmp_path),
        "-G",
        "Ninja",
        "-DSDM_CUDA=OFF",
        *options,
    ]
    words += [f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={pybind11.get_cmake_dir()}"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rules = (tmp_path / "build.ninja").read_text()
    assert "csrc/plancap/run/chain.cpp" in rules
    on = options == ["-DSDM_TESTING=ON"]
    assert [source in rules for source in SOURCES] == [on, on]
    assert ("SDM_WITH_TESTING" in rules) == on


def test_an_editable_install_has_it() -> None:
    """So that it cannot go missing where the suite is run from a checkout."""
    origin = distribution("sdm-runtime").read_text("direct_url.json") or "{}"
    if not json.loads(origin).get("dir_info", {}).get("editable"):
        pytest.skip("not an editable install")
    assert hasattr(_core, "testing")


def test_its_absence_is_said_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(_core, "testing", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"^sdm_runtime\._core\.testing: not in this"):
        core_testing()
    for text in (MISSING, ROOT.joinpath("tests/README.md").read_text()):
        assert "SKBUILD_CMAKE_DEFINE=SDM_TESTING=ON" in text


def test_it_shares_the_registry_of_the_extension() -> None:
    core_testing().register_kernels()
    assert {"testing_odd_layout", "testing_walk", "gx_gemm"} <= set(_core.kernel_names())
