"""Python in another process, on the package that this process tests, wherever that was built."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

import sdm_runtime
from sdm_runtime.machine import forked

_HERE = Path(__file__).parent
_FOLDERS = (Path(sdm_runtime.__file__).parents[1], _HERE, _HERE.parent / "kernels")
_TIMEOUT = 60  # seconds until a child counts as hung


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``python arguments``; the helpers of these tests can be imported."""
    path = os.pathsep.join([*map(str, _FOLDERS), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-P", *arguments],  # -P: not the package of the current folder
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use ``count`` threads; afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def teams_that_stay() -> Iterator[None]:
    """As with an OpenMP whose teams nobody can end before a fork."""
    found = forked.omp_pause
    forked.omp_pause = lambda: None  # type: ignore[assignment]
    try:
        yield
    finally:
        forked.omp_pause = found


def _answer(run: Callable[[], float], one_thread: bool, pipe: Connection) -> None:
    try:
        if one_thread:
            torch.set_num_threads(1)
        pipe.send(run())
    except RuntimeError as error:
        pipe.send(str(error))


def answer_of_child(
    run: Callable[[], float], start: str = "fork", one_thread: bool = False
) -> float | str:
    """What ``run`` returns in a child, or its RuntimeError's text; "hangs" where it says nothing.

    ``start`` is multiprocessing's start method, ``one_thread`` what the child tells torch first.
    """
    mine, theirs = multiprocessing.Pipe()
    context: Any = multiprocessing.get_context(start)
    child = context.Process(target=_answer, args=(run, one_thread, theirs))
    child.start()
    said = mine.recv() if mine.poll(_TIMEOUT) else "hangs"
    child.kill()
    child.join()
    return said
