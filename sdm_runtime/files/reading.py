"""Files that are read without waiting for ever. Needs no torch.

A file to read may be a device or a pipe that never ends, or one that nobody writes to.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

Source = str | os.PathLike[str] | int  # a path, or a descriptor that is open, as open() takes them

STANDARD_INPUT = 0
MOST_BYTES = 1 << 28  # of one file: chains take kilobytes, a trace 100 bytes a kernel

_PIECE = 1 << 20  # bytes: what a file does not hold is not allocated


def source_name(source: Source) -> str:
    """What messages call a source."""
    if isinstance(source, int):
        return "standard input" if source == STANDARD_INPUT else f"descriptor {source}"
    return os.fspath(source)


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Let the OSErrors of the body name the file that the caller knows; the type stays."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), name) from error


class Reader:
    """The bytes of an open source, from the first to the last."""

    def __init__(self, descriptor: int, name: str, first: bytes = b""):
        """``first``: what was read of it already."""
        self._descriptor, self._name, self._first = descriptor, name, first

    def read(self, most: int) -> bytes:
        """Up to ``most`` bytes; fewer only where the source ends. Raises OSError."""
        piece, self._first = self._first[:most], self._first[most:]
        pieces = [piece]
        left = most - len(piece)
        with naming(self._name):
            while left > 0 and (piece := os.read(self._descriptor, min(left, _PIECE))):
                pieces.append(piece)
                left -= len(piece)
        return b"".join(pieces)


@contextmanager
def opened(source: Source) -> Iterator[Reader]:
    """A regular file or a pipe, to read.

    Raises:
        FileNotFoundError: There is no such file; as open() raises it.
        OSError: The source cannot be read, is a device or a folder, or is a pipe that nobody
            writes to.
    """
    name = source_name(source)
    if isinstance(source, int):
        yield _open_reader(source, name, shared=True)
        return
    descriptor = _open(source)
    try:
        yield _open_reader(descriptor, name, shared=False)
    finally:
        os.close(descriptor)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """A regular file, to read and to seek in.

    Raises:
        FileNotFoundError: There is no such file; as open() raises it.
        OSError: It cannot be opened, or is not a regular file: a pipe, a device, a folder.
    """
    name = os.fspath(path)
    _expect_regular(os.stat(name), name)
    descriptor = _open(name)
    try:
        _expect_regular(os.fstat(descriptor), name)  # it may have become another since
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _expect_regular(found: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        reason = "not a regular file: a device or a pipe may never end"
        raise OSError(errno.EINVAL, reason, name)


def _open(path: str | os.PathLike[str]) -> int:
    """Without waiting: a pipe's other end may never be opened."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)


def _open_reader(descriptor: int, name: str, *, shared: bool) -> Reader:
    """``shared``: with other processes, which opened it and would notice another mode."""
    with naming(name):
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISFIFO(mode) and not shared:
            return Reader(descriptor, name, _first_of_pipe(descriptor, name))
    if stat.S_ISREG(mode) or (shared and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))):
        return Reader(descriptor, name)
    raise OSError(errno.EINVAL, "not a regular file or a pipe", name)


def _first_of_pipe(descriptor: int, name: str) -> bytes:
    """What a pipe that was opened without waiting holds; from here on reading it waits."""
    try:
        first = os.read(descriptor, _PIECE)
        if not first:
            raise OSError(errno.ENODATA, "a pipe that nobody writes to", name)
    except BlockingIOError:  # somebody will
        first = b""
    os.set_blocking(descriptor, True)
    return first


def read_file(source: Source, most_bytes: int = MOST_BYTES) -> bytes:
    """All bytes of a regular file or a pipe.

    Raises:
        OSError: As :func:`opened`; or there are more than ``most_bytes``.
    """
    with opened(source) as reader:
        data = reader.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise too_large(source, most_bytes)
    return data


def too_large(source: Source, most_bytes: int = MOST_BYTES) -> OSError:
    """The error of a source with more bytes than it can have."""
    message = f"expected at most {most_bytes} bytes, got more"
    return OSError(errno.EFBIG, message, source_name(source))
