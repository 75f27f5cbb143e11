"""The BLAS libraries that this process has mapped."""

from __future__ import annotations

import re
from typing import NamedTuple


class KeyUnreadableError(RuntimeError):
    """Something that may change the library's arithmetic cannot be told; nothing is proven."""


class BlasPaths(NamedTuple):
    """The files of the one cuBLAS and the one cuBLASLt."""

    cublas: str
    cublas_lt: str


_FILES = {
    "cublas": re.compile(r"libcublas\.so(\.|$)"),
    "cublas_lt": re.compile(r"libcublasLt\.so(\.|$)"),
}


def blas_paths(maps: str) -> BlasPaths:
    """The libraries in the text of ``/proc/self/maps``.

    One file under two names (links) is one library.

    Raises:
        KeyUnreadableError: One of the two is missing, deleted, or mapped from two files: nothing
            says which of them torch calls.
    """
    found: dict[str, dict[tuple[str, str], str]] = {kind: {} for kind in _FILES}
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) < 6:
            continue  # anonymous memory
        path = fields[5]
        for kind, pattern in _FILES.items():
            if pattern.match(path.rpartition("/")[2]):
                found[kind].setdefault((fields[3], fields[4]), path)  # by device and inode
    return BlasPaths(*(_only(kind, list(found[kind].values())) for kind in _FILES))


def _only(kind: str, paths: list[str]) -> str:
    if len(paths) != 1:
        given = ", ".join(paths) or "none"
        raise KeyUnreadableError(f"{kind}: expected one loaded library, got {given}")
    if paths[0].endswith(" (deleted)"):
        raise KeyUnreadableError(f"{kind}: the file of the loaded library is gone: {paths[0]}")
    return paths[0]
