"""Files that are written whole or not at all. Needs no torch.

A file to write may be the one that was read, or the only good copy when the disk is full.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sdm_runtime.files.reading import Source, naming, source_name


class Sink:
    """Takes the bytes of a file that is being written.

    It keeps the first error: a library that writes through it may hide that behind one of its own.
    """

    def __init__(self, descriptor: int, name: str) -> None:
        """``name``: what errors call the file."""
        self._descriptor, self._name = descriptor, name
        self.error: OSError | None = None

    def write(self, data: bytes | memoryview) -> int:
        """Write all of ``data`` and return its length in bytes. Raises OSError."""
        left = memoryview(data).cast("B")
        length = len(left)
        try:
            with naming(self._name):
                while left:
                    left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            self.error = self.error or error
            raise
        return length

    def flush(self) -> None:
        """Nothing waits here; libraries that write to files ask for it."""


def write_file(path: str | os.PathLike[str], data: bytes, *, inputs: Iterable[Source] = ()) -> None:
    """Make ``data`` the bytes of a file, or leave what was there; see :func:`replacing`."""
    with replacing(path, inputs=inputs) as sink:
        sink.write(data)


@contextmanager
def replacing(
    path: str | os.PathLike[str], *, inputs: Iterable[Source] = (), one_writer: bool = False
) -> Iterator[Sink]:
    """Give a sink whose bytes become a file once the body has ended, or leave what was there.

    They are written beside the file, which is then replaced. A link is followed, and the file that
    was there passes its mode on. What is there and is no regular file (a device, a pipe) gets the
    bytes as they come.

    Args:
        path: The file; its folder must exist.
        inputs: What the bytes are made from: none of them is overwritten, by whatever name.
        one_writer: Nobody else writes this file meanwhile: what is beside it has the name
            ``partial_name(path)``, and what a process that was killed left there is removed.

    Raises:
        ValueError: ``path`` is one of the inputs.
        OSError: The file cannot be written; the error names ``path``, whose folder is not there
            where it ends with a slash, or what stands in the way of the partial file.
    """
    name = os.fspath(path)
    with naming(name):
        there = _stat(name)
        if there is not None:
            _expect_no_input(name, there, inputs)
        else:
            _expect_new_name(name)
        target = os.path.realpath(name)
        whole = there is None or _is_regular_file(target, there)
    if not whole:
        writing = _in_place(name)
    elif one_writer:
        partial = os.fspath(partial_name(name))
        with suppress(FileNotFoundError):
            os.unlink(partial)  # it may be a link or a pipe: never written through
        writing = _beside(name, target, there, partial)
    else:
        partial = os.path.join(os.path.dirname(target), f".{secrets.token_hex(8)}.partial")
        writing = _beside(name, target, there, partial)
    with writing as descriptor:
        sink = Sink(descriptor, name)
        try:
            yield sink
        except Exception:
            if sink.error is None:
                raise
        if sink.error is not None:
            raise sink.error


def partial_name(path: str | os.PathLike[str]) -> Path:
    """Where the only writer of a file writes what will be ``path``: beside what a link names."""
    target = os.path.realpath(path) if os.path.islink(path) else path
    return Path(target).with_suffix(".partial")


def _stat(source: Source) -> os.stat_result | None:
    try:
        return os.stat(source)
    except FileNotFoundError:
        return None


def _expect_new_name(name: str) -> None:
    """realpath() alone would make ``new/`` and ``new/.`` files, and ``new/../page`` one here."""
    folder, last = os.path.split(name)
    os.stat(folder or os.curdir)
    if last in ("", os.curdir, os.pardir):
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))


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


@contextmanager
def _in_place(name: str) -> Iterator[int]:
    with naming(name):
        file = open(name, "wb", buffering=0)  # noqa: SIM115 - the body's errors stay
    try:
        yield file.fileno()
    finally:
        with naming(name):
            file.close()


@contextmanager
def _beside(name: str, target: str, there: os.stat_result | None, partial: str) -> Iterator[int]:
    with naming(name):
        if there is not None and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))  # a rename would not ask
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            with naming(name):
                if there is not None:
                    os.fchmod(descriptor, stat.S_IMODE(there.st_mode))
            yield descriptor
            with naming(name):
                os.fsync(descriptor)  # some file systems find out here that there is no room
        finally:
            with naming(name):
                os.close(descriptor)
        with naming(name):
            os.replace(partial, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise
