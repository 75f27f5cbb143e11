"""How a command ends: what became of its output, and its exit status.

A reader that goes away (``| head``) has seen enough: the rest is thrown away, and the status says
what it would have said. Output that cannot be written for another reason is lost: status 2.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Callable

UNUSABLE = 2  # a file, an argument or the output


class OutputError(Exception):
    """Standard output cannot be written; the message is the system's reason.

    Not an OSError: typer and rich treat a broken pipe as a failure of the command.
    """


class _Output(io.RawIOBase):
    """Standard output, or what stands for one that is closed."""

    def __init__(self, descriptor: int | None):
        super().__init__()
        self._descriptor = descriptor
        self._over = False  # nobody gets what is written from now on

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._descriptor is not None and os.isatty(self._descriptor)

    def fileno(self) -> int:
        if self._descriptor is None:
            raise io.UnsupportedOperation("standard output is closed")
        return self._descriptor

    def write(self, data: bytes | bytearray | memoryview, /) -> int:  # type: ignore[override]
        if not self._over:
            try:
                if self._descriptor is None:
                    raise OSError(errno.EBADF, os.strerror(errno.EBADF))
                return os.write(self._descriptor, data)
            except BrokenPipeError:
                self._over = True
            except OSError as error:
                self._over = True
                raise OutputError(reason(error)) from None
        return len(data)


def _open_output() -> io.TextIOWrapper:
    """A stream for ``sys.stdout``, which Python leaves None where the descriptor is closed."""
    stdout = sys.stdout
    raw = _Output(None if stdout is None else stdout.fileno())
    return io.TextIOWrapper(
        io.BufferedWriter(raw),  # type: ignore[type-var]
        encoding="utf-8" if stdout is None else stdout.encoding,
        errors="backslashreplace",  # names that are not text stay readable
        line_buffering=raw.isatty(),
    )


def reason(error: OSError) -> str:
    """The system's reason, without its number."""
    return error.strerror.lower() if error.strerror else str(error)


def complain(message: str) -> None:
    """Print a line to standard error; where that cannot be written, the status alone speaks."""
    if sys.stderr is None:
        return  # print would take standard output for it
    try:
        print(message, file=sys.stderr, flush=True)
    except OSError:
        sys.stderr = None  # or Python's own end would try once more and change the status


def run(command: Callable[[], object], name: str) -> int:
    """Run a command that prints to ``sys.stdout``, and give its exit status.

    An error that the command does not know keeps its traceback, with status 2: 1 says that faults
    or differences were found, and they were not looked for.
    """
    status: object = 0
    try:
        sys.stdout = output = _open_output()
        try:
            command()
        except SystemExit as end:
            status = end.code
        output.flush()
    except OutputError as error:
        complain(f"{name}: standard output: {error}")
        return UNUSABLE
    except Exception:
        complain(traceback.format_exc().rstrip())
        return UNUSABLE
    return status if isinstance(status, int) else 0
