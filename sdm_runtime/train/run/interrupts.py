"""Stopping where it does no harm: between two steps, or at once where nothing is at work."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

# Within it, a signal is one with that before it: a terminal and a launcher, or `timeout` and its
# process group, send the same one twice.
_SAME_SIGNAL_S = 1.0


class Stopped(BaseException):
    """The session ended before the run did; the message says where, and how to go on.

    Like KeyboardInterrupt not an Exception: a signal may raise it anywhere, also inside code that
    catches every Exception.
    """


@dataclass
class StopRequest:
    """Whether somebody asked to stop, and what becomes of it.

    Attributes:
        requested: somebody asked.
        at_once: what to say where a signal is to end the session at once; None where it is to end
            at the next place that asks for ``requested``.
    """

    requested: bool = False
    at_once: str | None = None

    @contextmanager
    def in_time(self) -> Iterator[None]:
        """Let signals in the body be requests alone: it looks at ``requested`` by itself."""
        before, self.at_once = self.at_once, None
        try:
            yield
        finally:
            self.at_once = before

    def obey(self, message: str | None) -> None:
        """From here on end at once with ``message``; also for a signal that has come before.

        Raises:
            Stopped: one has.
        """
        self.at_once = message
        if message is not None and self.requested:
            raise Stopped(message)


@contextmanager
def stop_on_signal(*, several: bool = False) -> Iterator[StopRequest]:
    """Turn SIGINT, SIGTERM and SIGHUP into a request to stop.

    The first one makes the request, or raises Stopped where the request's ``at_once`` is set. One
    more, a second or more later, acts as it did before. Outside the main thread signals cannot be
    caught, and the request is never made.

    Args:
        several: there are other processes in the run, which stop after the same step. Then later
            signals do nothing, up to the end of the process: the launcher sends more as soon as
            the first process has ended, and kills by force those that take too long.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    kinds = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
        kinds.append(signal.SIGHUP)
    before = {kind: signal.getsignal(kind) for kind in kinds}
    first_at: float | None = None

    def restore() -> None:
        for kind in kinds:
            signal.signal(kind, before[kind])

    def request(kind: int, _: object) -> None:
        nonlocal first_at
        now = time.monotonic()
        if first_at is None:
            first_at, stop.requested = now, True
            if stop.at_once is not None:
                raise Stopped(stop.at_once)
        elif now - first_at >= _SAME_SIGNAL_S and not several:
            restore()
            signal.raise_signal(kind)

    for kind in kinds:
        signal.signal(kind, request)
    try:
        yield stop
    finally:
        if not several:
            restore()
