"""The console scripts. Needs neither torch nor typer: both take seconds to load.

A signal meanwhile ends the process at once, with one line and status 130: nothing is at work yet.
Later ones do so as well, by SystemExit, where the command takes no care of them itself.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_STOPPED = 130


def train() -> None:
    """Run ``sdm-train``."""
    _run("sdm-train", "sdm_runtime.train.run.cli")


def plan() -> None:
    """Run ``sdm-plan``."""
    _run("sdm-plan", "sdm_runtime.inspect.commands.cli")


def _run(name: str, module: str) -> None:
    with _stopped_by_signals(name) as loading:
        main = importlib.import_module(module).main
        loading.over = True
        main()


class _Loading:
    over = False


@contextmanager
def _stopped_by_signals(name: str) -> Iterator[_Loading]:
    """Let SIGINT, SIGTERM and SIGHUP stop the command, but those that are ignored, as by nohup."""
    loading = _Loading()
    if threading.current_thread() is not threading.main_thread():
        yield loading
        return
    before = {
        kind: found
        for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if (found := signal.getsignal(kind)) is not signal.SIG_IGN
    }

    def stop(*_: object) -> None:
        if os.environ.get("RANK", "0") == "0":  # of several processes one says so
            with suppress(OSError):
                os.write(2, f"{name}: stopped\n".encode())
        if loading.over:
            sys.exit(_STOPPED)  # what is at work cleans up behind it
        # Not an exception: modules that are being loaded may catch one, or turn it into another.
        os._exit(_STOPPED)

    for kind in before:
        signal.signal(kind, stop)
    try:
        yield loading
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
