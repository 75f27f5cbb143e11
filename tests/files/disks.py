"""A disk that is full, without one: files of this process cannot grow beyond a limit."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def file_limit(num_bytes: int) -> Iterator[None]:
    """Let no file be written beyond ``num_bytes``; python ignores the signal, so writes fail."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
