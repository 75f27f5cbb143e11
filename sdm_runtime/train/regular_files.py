"""Files opened for reading without ever waiting for one."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading in bytes.

    Raises:
        OSError: it cannot be opened, or is no regular file: a pipe, a device, a folder.
    """
    _expect_regular(os.stat(path), path)
    # What is there may have changed since: to open a pipe without a writer would wait for one.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    file = os.fdopen(number, "rb")
    try:
        _expect_regular(os.fstat(number), path)
    except OSError:
        file.close()
        raise
    return file


def _expect_regular(found: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(found.st_mode):
        reason = "not a regular file: a device or a pipe may never end"
        raise OSError(None, reason, os.fspath(path))
