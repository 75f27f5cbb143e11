"""Files that are read whole, and files that are written whole or not at all. Needs no torch.

A file to read may be a device or a pipe that never ends, or one that nobody writes to; a file to
write may be the one that was read, or the only good copy when the disk is full.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

Source = str | os.PathLike[str] | int  # a path, or a descriptor that is open, as open() takes them

STANDARD_INPUT = 0
MOST_BYTES = 1 << 28  # of one file: chains take kilobytes, a trace 100 bytes a kernel

_PIECE = 1 << 20  # bytes: what a file does not hold is not allocated


def source_name(source: Source) -> str:
    """What messages call a source."""
    if isinstance(source, int):
        return "standard input" if source == STANDARD_INPUT else f"descriptor {source}"
    return os.fspath(source)


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
        try:
            while left > 0 and (piece := os.read(self._descriptor, min(left, _PIECE))):
                pieces.append(piece)
                left -= len(piece)
        except OSError as error:
            raise _named(error, self._name) from error
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
    # Without waiting: a pipe's other end may never be opened.
    descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        yield _open_reader(descriptor, name, shared=False)
    finally:
        os.close(descriptor)


def _open_reader(descriptor: int, name: str, *, shared: bool) -> Reader:
    """``shared``: with other processes, which opened it and would notice another mode."""
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISFIFO(mode) and not shared:
            return Reader(descriptor, name, _first_of_pipe(descriptor, name))
    except OSError as error:
        raise _named(error, name) from error
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
    """The error of a source with more bytes than anything it could be."""
    message = f"expected at most {most_bytes} bytes, got more"
    return OSError(errno.EFBIG, message, source_name(source))


def write_file(path: str | os.PathLike[str], data: bytes, *, inputs: Iterable[Source] = ()) -> None:
    """Write a file whole or leave what was there: written beside it, then renamed.

    A link is followed, and the file that was there passes its mode on. What is there and is no
    regular file (a device, a pipe) gets the bytes as they are.

    Args:
        path: The file; its folder must exist.
        data: All of it.
        inputs: What the data were made from: none of them is overwritten, by whatever name.

    Raises:
        ValueError: ``path`` is one of the inputs.
        OSError: The file cannot be written; the error names ``path``.
    """
    name = os.fspath(path)
    try:
        there = _stat(name)
        if there is not None:
            _expect_no_input(name, there, inputs)
        target = os.path.realpath(name)
        if there is None or _is_regular_file(target, there):
            _write_beside(target, data, there)
        else:
            with open(name, "wb", buffering=0) as file:
                _write_all(file.fileno(), data)
    except OSError as error:
        raise _named(error, name) from error


def _named(error: OSError, name: str) -> OSError:
    """The same error of the file that the caller knows; its type follows from its number."""
    return OSError(error.errno, error.strerror, name)


def _stat(source: Source) -> os.stat_result | None:
    try:
        return os.stat(source)
    except FileNotFoundError:
        return None


def _expect_no_input(name: str, there: os.stat_result, inputs: Iterable[Source]) -> None:
    for source in inputs:
        given = _stat(source)
        if given is not None and os.path.samestat(there, given):
            raise ValueError(
                f"{name}: expected a file that is not read, got {source_name(source)}"
                + ("" if source_name(source) == name else " under another name")
            )


def _is_regular_file(target: str, there: os.stat_result) -> bool:
    """Whether a rename to ``target`` replaces it: a descriptor's file may have no name any more."""
    named = _stat(target)
    return stat.S_ISREG(there.st_mode) and named is not None and os.path.samestat(named, there)


def _write_beside(target: str, data: bytes, there: os.stat_result | None) -> None:
    if there is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))  # a rename would not ask
    beside = os.path.join(os.path.dirname(target), f".{secrets.token_hex(8)}.partial")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            if there is not None:
                os.fchmod(descriptor, stat.S_IMODE(there.st_mode))
            _write_all(descriptor, data)
            os.fsync(descriptor)  # some file systems find out here that there is no room
        finally:
            os.close(descriptor)
        os.replace(beside, target)
    except BaseException:
        os.unlink(beside)
        raise


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
