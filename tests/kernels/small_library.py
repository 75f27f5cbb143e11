"""A few lines of C++ over the sources' headers, compiled for one test and called by ctypes."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parents[2] / "csrc"
FLAGS = ["-std=c++20", "-O1", "-fPIC", "-shared", "-ffp-contract=off", "-Wall", "-Wextra"]

needs_compiler = pytest.mark.skipif(
    platform.system() != "Linux" or not shutil.which("g++"), reason="needs g++ on Linux"
)


def compile_text(
    folder: Path, text: str, flags: list[str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Compiles ``text`` to folder/small.so, ``flags`` first; the caller looks at the result."""
    source = folder / "small.cpp"
    source.write_text(text)
    command = [
        "g++",
        *(flags or []),
        *FLAGS,
        f"-I{CSRC}",
        str(source),
        "-o",
        str(folder / "small.so"),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def small_library(folder: Path, text: str) -> ctypes.CDLL:
    """``text`` as a library; its functions are extern "C"."""
    done = compile_text(folder, text)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return ctypes.CDLL(str(folder / "small.so"))
