"""Text files as byte documents, split by file into training and validation."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from sdm_runtime.files.reading import open_regular
from sdm_runtime.train.free_memory import free_bytes, gib

# Installed packages and test suites differ from machine to machine; what is left barely does.
_NOT_LIBRARY = frozenset({"site-packages", "dist-packages", "test", "tests", "__pycache__"})


class DataError(ValueError):
    """A text file cannot be used; the message names the file and the reason."""


@dataclass(frozen=True)
class Documents:
    """Byte documents back to back in one buffer.

    Attributes:
        data: uint8 [total bytes], the documents one after another.
        bounds: int64 [documents + 1]; document i is ``data[bounds[i]:bounds[i + 1]]``.
        names: where each document came from.
    """

    data: Tensor
    bounds: Tensor
    names: tuple[str, ...]

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.names)

    @property
    def num_bytes(self) -> int:
        """Return the length of all documents together, in bytes."""
        return int(self.bounds[-1])

    def lengths(self) -> Tensor:
        """Return the length of each document in bytes, int64 [documents]."""
        return self.bounds.diff()

    def document(self, index: int) -> Tensor:
        """Return the bytes of one document, a uint8 view of ``data``."""
        return self.data[int(self.bounds[index]) : int(self.bounds[index + 1])]

    def truncated(self, max_bytes: int) -> Documents:
        """Return the same documents with at most their first ``max_bytes`` bytes each."""
        parts = [self.document(i)[:max_bytes] for i in range(len(self))]
        return _pack(parts, self.names)

    def take(self, indices: Iterable[int]) -> Documents:
        """Return the documents of the given indices, in that order."""
        chosen = list(indices)
        return _pack([self.document(i) for i in chosen], [self.names[i] for i in chosen])

    def digest(self) -> str:
        """Return a hash of the documents' bytes and bounds (not of their names)."""
        hasher = hashlib.sha256(self.bounds.numpy().tobytes())
        hasher.update(self.data.numpy().tobytes())
        return hasher.hexdigest()[:16]


@dataclass(frozen=True)
class Corpus:
    """The two sides of the split.

    Attributes:
        train: what is trained on.
        validation: what is not.
        copies: names of files with the bytes of one before them, and that one's name.
    """

    train: Documents
    validation: Documents
    copies: tuple[tuple[str, str], ...] = ()


def standard_library_files() -> list[Path]:
    """Return the non-empty .py files of the running Python's standard library, sorted.

    Installed packages (site-packages) and test suites are left out.
    """
    root = Path(sysconfig.get_path("stdlib"))
    found: list[Path] = []
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = sorted(set(subfolders) - _NOT_LIBRARY)
        found += [Path(folder, name) for name in files if name.endswith(".py")]
    found = sorted(path for path in found if path.stat().st_size > 0)
    if not found:
        raise DataError(f"no .py files under {root}; give text files on the command line")
    return found


def load_corpus(paths: Sequence[Path], validation_fraction: float = 0.1) -> Corpus:
    """Read the files and split them by file.

    A file belongs to the validation side when the hash of its bytes falls into the lowest
    ``validation_fraction`` of all hashes: the side depends on no other file, no path and no seed,
    and two copies of one file never stand on different sides (they are read once). Should one
    side come out empty, it gets the one file whose hash is nearest to it. A single file is cut
    instead: its tail is the validation document.

    Raises:
        DataError: a file is missing, empty, unreadable or not a regular file; or there is no file.
        ValueError: ``validation_fraction`` is not in (0, 1).
    """
    if not 0.0 < validation_fraction < 1.0:
        raise ValueError(f"validation_fraction: expected within (0, 1), got {validation_fraction}")
    if not paths:
        raise DataError("no text file given")
    _expect_room(paths)
    unique: dict[float, tuple[str, bytes]] = {}
    copies: list[tuple[str, str]] = []
    for path in paths:
        content = _read(path)
        rank = _hash_fraction(content)
        if rank in unique:
            copies.append((str(path), unique[rank][0]))
        else:
            unique[rank] = (str(path), content)
    if len(unique) == 1:
        cut = _cut(*next(iter(unique.values())), validation_fraction)
        return dataclasses.replace(cut, copies=tuple(copies))
    ranks = sorted(unique)
    num_validation = sum(rank < validation_fraction for rank in ranks)
    num_validation = min(max(num_validation, 1), len(ranks) - 1)
    chosen = set(ranks[:num_validation])
    return Corpus(
        train=from_bytes([unique[r] for r in unique if r not in chosen]),
        validation=from_bytes([unique[r] for r in unique if r in chosen]),
        copies=tuple(copies),
    )


def from_bytes(named: Sequence[tuple[str, bytes]]) -> Documents:
    """Return documents from (name, content) pairs, in order."""
    buffers = [torch.frombuffer(bytearray(content), dtype=torch.uint8) for _, content in named]
    return _pack(buffers, [name for name, _ in named])


def _expect_room(paths: Sequence[Path]) -> None:
    sizes = {path: path.stat().st_size for path in paths if path.is_file()}
    # Each byte is held twice while the texts are put together.
    need, free = 2 * sum(sizes.values()), free_bytes(torch.device("cpu"))
    if need > free:
        largest = max(sizes, key=lambda path: sizes[path])
        raise DataError(
            f"{largest}: {sizes[largest]:,} bytes; all texts together need {gib(need)} GiB, "
            f"{gib(free)} GiB are free"
        )


def _read(path: Path) -> bytes:
    if path.is_dir():
        raise DataError(f"{path}: a folder; give text files")
    try:
        with open_regular(path) as file:
            content = file.read()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if not content:
        raise DataError(f"{path}: empty")
    return content


def _hash_fraction(content: bytes) -> float:
    """Return the first 52 bits of the content's hash as a fraction in [0, 1)."""
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "big") / 2.0**64


def _cut(name: str, content: bytes, validation_fraction: float) -> Corpus:
    at = len(content) - max(1, round(len(content) * validation_fraction))
    if at < 1:
        raise DataError(f"{name}: {len(content)} byte(s) are too few to train and validate on")
    return Corpus(
        train=from_bytes([(name, content[:at])]),
        validation=from_bytes([(f"{name} (tail)", content[at:])]),
    )


def _pack(parts: Sequence[Tensor], names: Sequence[str]) -> Documents:
    lengths = torch.tensor([len(part) for part in parts], dtype=torch.int64)
    bounds = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    return Documents(torch.cat(list(parts)), bounds, tuple(names))
