"""Stopping between two steps on Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class StopRequest:
    """Whether somebody asked to stop."""

    requested = False


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """Turn the first SIGINT or SIGTERM into a request; the second one acts as usual.

    Outside the main thread signals cannot be caught, and the request is never made.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = {kind: signal.getsignal(kind) for kind in kinds}

    def request(kind: int, _: object) -> None:
        stop.requested = True
        signal.signal(kind, before[signal.Signals(kind)])

    for kind in kinds:
        signal.signal(kind, request)
    try:
        yield stop
    finally:
        for kind in kinds:
            signal.signal(kind, before[kind])
