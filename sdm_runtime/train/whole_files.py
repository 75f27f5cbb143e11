"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


class Sink:
    """Takes the bytes of a file that is being written.

    It keeps the first error: a library that writes through it may hide that behind one of its own.
    """

    def __init__(self, file: BinaryIO) -> None:
        """Write to ``file``."""
        self._file = file
        self.error: OSError | None = None

    def write(self, data: bytes | memoryview) -> int:
        """Write all of ``data`` and return its length in bytes."""
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = self.error or error
            raise

    def flush(self) -> None:
        """Hand what is buffered to the system."""
        try:
            self._file.flush()
        except OSError as error:
            self.error = self.error or error
            raise


@contextmanager
def replacing(path: Path) -> Iterator[Sink]:
    """Give a sink whose bytes become the file ``path`` once the body has ended.

    Raises:
        OSError: the file cannot be written; see ``beside``.
    """
    with beside(path) as partial, partial.open("xb") as file:
        sink = Sink(file)
        try:
            yield sink
            sink.flush()
        except Exception:
            if sink.error is not None:
                raise sink.error from None
            raise


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Give the path of a partial file that the body writes and that then becomes ``path``.

    It is brought to the disk before it is renamed. Where that fails or the body raises, it is
    removed and what was at ``path`` stays.

    Raises:
        OSError: the file cannot be written; ``filename`` says which.
    """
    partial = partial_name(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Left by a process that was killed, or a link or a pipe of that name: never written through.
    partial.unlink(missing_ok=True)
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, os.fspath(partial)):
            reason = error.strerror or str(error)
            raise OSError(error.errno, reason, os.fspath(path)) from error
        raise


def write_whole(path: Path, content: bytes) -> None:
    """Make ``content`` the bytes of ``path``; see ``beside``."""
    with replacing(path) as sink:
        sink.write(content)


def partial_name(path: Path) -> Path:
    """Return where ``beside`` writes what will be ``path``."""
    return path.with_suffix(".partial")
