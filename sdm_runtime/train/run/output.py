"""Standard output that may fail: a closed pipe or a full disk never ends a run."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from typing import TextIO


class Output:
    """A text stream to print on. What cannot be written is left out, and stderr says so once.

    After a closed pipe nothing more is tried; on a full disk there may be room again.
    """

    def __init__(self, stream: TextIO | None) -> None:
        """Print on ``stream``; on nothing where there is none, as where it was closed at start."""
        self._stream = stream
        self._told = False

    @property
    def encoding(self) -> str:
        """Name of the stream's encoding."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream is not None and self._stream.isatty()

    def write(self, text: str) -> int:
        """Write text; what the encoding does not have is written as ``\\xNN`` or ``\\uNNNN``."""
        if self._stream is not None:
            try:
                self._stream.write(_encodable(text, self.encoding))
            except OSError as error:
                self._failed(error)
        return len(text)

    def flush(self) -> None:
        """Hand what is buffered to the system."""
        if self._stream is not None:
            try:
                self._stream.flush()
            except OSError as error:
                self._failed(error)

    def _failed(self, error: OSError) -> None:
        assert self._stream is not None
        if error.errno == errno.EPIPE:
            drop_what_is_left(self._stream)
            self._stream = None
        if not self._told:
            self._told = True
            tell(
                f"sdm-train: note: standard output cannot be written ({error.strerror}); "
                "the run goes on"
            )


def tell(line: str) -> None:
    """Print a line on stderr, if there is one that can be written."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(line, file=sys.stderr, flush=True)


def open_standard_streams() -> None:
    """Open what was closed at start on the null device: else a file of the run gets its number."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, this one


def settle() -> None:
    """Write what stdout and stderr have buffered, or drop it: python's own end would fail on it."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None:
            continue
        try:
            stream.flush()
        except OSError:
            drop_what_is_left(stream)


def drop_what_is_left(stream: TextIO) -> None:
    """Let a stream that cannot be written end in the null device, with what it has buffered."""
    with suppress(OSError), open(os.devnull, "wb") as nothing:  # OSError: it has no number
        os.dup2(nothing.fileno(), stream.fileno())
        stream.flush()


def _encodable(text: str, encoding: str) -> str:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.encode(encoding, "backslashreplace").decode(encoding)
    return text
