"""Calls on the CPU in a process forked after its parent has run some: an error where a hang was.

The threads of an OpenMP team belong to the thread that started them, and a fork copies that thread
alone: the first parallel loop of the child, torch's or ours, would wait for threads that are gone.
"""

from __future__ import annotations

import os
import threading
from functools import lru_cache

import torch

_thread = threading.local()  # ran: calls of this thread had several threads; lost: a fork was after


def check_threads(where: str) -> None:
    """To be called before work on the CPU.

    Raises:
        RuntimeError: This is a forked child, and it asks for threads that it has lost.
    """
    if torch.get_num_threads() == 1:
        return
    if getattr(_thread, "lost", False):
        raise RuntimeError(
            f"[{where}] expected a process of its own, got one forked from a process that had run "
            "on several threads, which the fork has lost: call torch.set_num_threads(1) in it, or "
            'start it by multiprocessing\'s "spawn"'
        )
    _watch_forks()
    _thread.ran = True


@lru_cache(maxsize=1)
def _watch_forks() -> None:
    os.register_at_fork(after_in_child=_note_loss)


def _note_loss() -> None:
    if getattr(_thread, "ran", False):
        _thread.lost = True
