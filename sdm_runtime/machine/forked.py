"""Forks: a child has threads of its own, or is told that it has lost its parent's.

The threads of an OpenMP team belong to the thread that started them, and a fork copies that thread
alone: the first parallel loop of the child, torch's or ours, would wait for threads that are gone.
So a thread ends its team before it forks; parent and child make another when they need one. Where
that cannot be done, a call that would hang raises.

The package's first import sets the hooks (os.register_at_fork): they reach forks that Python makes,
whatever of the package the parent has used. Of other forks, and of those before that import, a
child knows only that it was forked: it leaves alone what may be its parent's, and calls of ours in
the parent tell it that its team is lost.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import torch

_HARD = 2  # omp_pause_hard: the threads end
_FORKED = 0x40  # PF_FORKNOEXEC of linux/sched.h


class _Thread(threading.local):
    ran = 0  # the process in which calls of ours had several threads here
    ended = False  # what it had of a team was ended before the last fork


class _Process:
    whole: int | None = None  # the process, where its first thread began without another's team


_thread, _process = _Thread(), _Process()


def check_threads(where: str) -> None:
    """To be called before work on the CPU.

    Raises:
        RuntimeError: This is a forked child, and it asks for threads that it has lost.
    """
    if torch.get_num_threads() == 1:
        return
    process = os.getpid()
    if _thread.ran == process:
        return
    if _thread.ran:
        raise RuntimeError(
            f"[{where}] expected a process of its own, got one forked from a process that had run "
            "on several threads, which the fork has lost: call torch.set_num_threads(1) in it, or "
            'start it by multiprocessing\'s "spawn"'
        )
    _thread.ran = process


def before_fork() -> None:
    """End the team of this thread, which is about to fork."""
    _thread.ended, pause = False, omp_pause()
    _thread.ended = pause is not None and _is_own_team() and pause(_HARD) == 0
    if _thread.ended:
        _thread.ran = 0


def after_fork_in_child() -> None:
    """Note what is known of the team that this thread would find."""
    _process.whole = os.getpid() if _thread.ended else 0


def _is_own_team() -> bool:
    """Whether a team that this thread has is of this process: of another, none can be ended."""
    process = os.getpid()
    if _thread.ran:
        return _thread.ran == process
    if _process.whole is None:
        _process.whole = 0 if _was_forked() else process
    return _process.whole == process or threading.get_native_id() != process


@lru_cache(maxsize=1)
def omp_pause() -> Callable[[int], int] | None:
    """omp_pause_resource_all of torch's OpenMP, if that is GNU's: others see to forks themselves.

    It ends the calling thread's team, and does no more (no device is asked).
    """
    try:
        library = ctypes.CDLL(torch._C.__file__, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        if hasattr(library, "__kmpc_fork_call"):  # LLVM's and Intel's
            return None
        pause: Callable[[int], int] = library.omp_pause_resource_all
    except (AttributeError, OSError):  # another system, or a runtime from before OpenMP 5
        return None
    return pause


def _was_forked() -> bool:
    """Whether this process is a fork that has not called exec since."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return bool(int(fields[6]) & _FORKED)
    except (OSError, IndexError, ValueError):
        return True  # not known: as if
