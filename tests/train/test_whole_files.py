"""Files written whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sdm_runtime.train.whole_files import beside, partial_name, replacing, write_whole

from .disks import file_limit


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "made" / "a.bin"
    with replacing(path) as sink:
        sink.write(b"one ")
        sink.write(memoryview(b"two"))
        assert names(path.parent) == {partial_name(path).name}
    assert path.read_bytes() == b"one two"
    assert names(path.parent) == {"a.bin"}


def test_a_body_that_raises_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    write_whole(path, b"old")

    def write_and_raise(error: BaseException) -> None:
        with replacing(path) as sink:
            sink.write(b"new")
            raise error

    for error in (ValueError("no"), KeyboardInterrupt(), OSError(errno.EIO, "bad", "elsewhere")):
        with pytest.raises(type(error)) as caught:
            write_and_raise(error)
        assert caught.value is error
        assert path.read_bytes() == b"old"
        assert names(tmp_path) == {"a.bin"}


@pytest.mark.parametrize("size", [200, 1 << 20], ids=["at the flush", "at the write"])
def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a.bin"
    write_whole(path, b"old")
    with file_limit(100), pytest.raises(OSError, match="File too large") as caught:
        write_whole(path, b"x" * size)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == {"a.bin"}
    with file_limit(100):
        write_whole(path, b"x" * 100)  # The control: as much as there is room for.
    assert path.read_bytes() == b"x" * 100


def test_a_librarys_own_error_does_not_hide_the_disks(tmp_path: Path) -> None:
    def write_as_a_library() -> None:
        with replacing(tmp_path / "a.bin") as sink:
            try:
                sink.write(b"x" * (1 << 20))
            except OSError:
                raise RuntimeError("unexpected pos 64 vs 0") from None

    with file_limit(100), pytest.raises(OSError, match="File too large"):
        write_as_a_library()
    assert names(tmp_path) == set()


def test_what_a_writer_of_paths_leaves(tmp_path: Path) -> None:
    page = tmp_path / "page.html"

    def write(text: str) -> None:
        with beside(page) as partial:
            partial.write_text(text)

    write("whole")
    assert page.read_text() == "whole"
    with file_limit(2), pytest.raises(OSError, match="File too large") as caught:
        write("longer")
    assert caught.value.filename == str(page)
    assert (page.read_text(), names(tmp_path)) == ("whole", {"page.html"})


def test_what_stands_in_the_way_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    partial_name(path).mkdir()
    with pytest.raises(OSError, match="directory") as caught:
        write_whole(path, b"new")
    assert caught.value.filename == str(partial_name(path))
    partial_name(path).rmdir()
    path.mkdir()
    with pytest.raises(OSError, match="directory") as caught:
        write_whole(path, b"new")
    assert caught.value.filename == str(path)
    assert names(tmp_path) == {"a.bin"}


def test_a_partial_file_that_was_left_is_not_written_through(tmp_path: Path) -> None:
    path, other = tmp_path / "a.bin", tmp_path / "other"
    other.write_text("of somebody else")
    partial_name(path).symlink_to(other)
    write_whole(path, b"new")
    assert other.read_text() == "of somebody else"
    os.mkfifo(partial_name(path))
    write_whole(path, b"newer")  # A pipe nobody reads: opened, it would wait for ever.
    assert path.read_bytes() == b"newer"
    assert names(tmp_path) == {"a.bin", "other"}
