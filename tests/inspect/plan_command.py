"""sdm-plan as a process of its own, with what a shell may give it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_MOST_KIB = (
    4_000_000  # of address space: an input without end is stopped before the machine is full
)


def run(folder, arguments, redirection="", *, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE):
    """Run sdm-plan behind a shell's redirection, or with descriptors as its standard streams."""
    words = [sys.executable, "-m", "sdm_runtime.inspect", *map(str, arguments)]
    return subprocess.run(
        ["bash", "-c", f'ulimit -v {_MOST_KIB}; exec "$@" {redirection}', "bash", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=30,
    )


def run_unread(folder, arguments):
    """Run it with a pipe whose reader has gone before the first byte."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return run(folder, arguments, stdout=writer)
    finally:
        os.close(writer)


def run_piped(folder, arguments, data: bytes):
    """Run it with bytes in a pipe as its standard input; at most what a pipe holds."""
    reader, writer = os.pipe()
    try:
        assert os.write(writer, data) == len(data) <= 1 << 16
        os.close(writer)
        return run(folder, arguments, stdin=reader)
    finally:
        os.close(reader)
