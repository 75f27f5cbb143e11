"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import stat
from array import array
from pathlib import Path

import pytest
from disks import file_limit

from sdm_runtime.files.writing import partial_name, replacing, write_file

ROOT = Path(__file__).parents[2]
OLD, NEW = b"the old page", b"a new page of another length"


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page"
    path.write_bytes(OLD)
    return path


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_a_file_is_written_and_nothing_stays_beside_it(page):
    write_file(page, NEW)
    write_file(str(page.with_name("other")), NEW)
    assert page.read_bytes() == page.with_name("other").read_bytes() == NEW
    assert names(page.parent) == ["other", "page"]


def fail(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def interrupt(*_):
    raise KeyboardInterrupt


def write_some(descriptor, data):
    """The disk is full behind the third byte."""
    if len(data) < len(NEW):
        fail()
    return os.pwrite(descriptor, data[:3], 0)


@pytest.mark.parametrize(
    ("call", "stand_in", "kind"),
    [
        ("write", fail, OSError),
        ("write", write_some, OSError),
        ("fsync", fail, OSError),
        ("replace", fail, OSError),
        ("fsync", interrupt, KeyboardInterrupt),
    ],
)
def test_a_failed_write_leaves_what_was_there(page, monkeypatch, call, stand_in, kind):
    monkeypatch.setattr(os, call, stand_in)
    for path in (page, page.with_name("new")):
        with pytest.raises(kind) as raised:
            write_file(path, NEW)
        if kind is OSError:
            assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(path))
    monkeypatch.undo()
    assert page.read_bytes() == OLD
    assert names(page.parent) == ["page"]


def test_a_reader_of_the_old_file_keeps_it(page):
    with page.open("rb") as old:
        write_file(page, NEW)
        assert old.read() == OLD
    assert page.read_bytes() == NEW


def test_a_write_in_parts_is_whole(page, monkeypatch):
    whole = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: whole(descriptor, data[:5]))
    write_file(page, NEW)
    assert page.read_bytes() == NEW


def test_the_mode_is_kept_and_a_new_file_has_the_usual_one(page):
    page.chmod(0o640)
    write_file(page, NEW)
    assert stat.S_IMODE(page.stat().st_mode) == 0o640
    new, usual = page.with_name("new"), page.with_name("usual")
    usual.touch()
    write_file(new, NEW)
    assert new.stat().st_mode == usual.stat().st_mode


def test_a_protected_file_is_not_replaced(page, monkeypatch):
    # As for a user without the right: root has every right.
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(PermissionError) as raised:
        write_file(page, NEW)
    assert raised.value.filename == str(page)
    assert page.read_bytes() == OLD


def test_a_link_is_followed(page):
    link, dangling = page.with_name("link"), page.with_name("dangling")
    link.symlink_to("page")
    dangling.symlink_to("target")
    for path in (link, dangling):
        write_file(path, NEW)
        assert path.is_symlink()
    assert page.read_bytes() == page.with_name("target").read_bytes() == NEW


@pytest.mark.parametrize("where", ["none/page", "page/below", "."])
def test_where_no_file_can_be_the_error_is_opens_own(page, monkeypatch, where):
    monkeypatch.chdir(page.parent)
    with pytest.raises(OSError) as wanted, open(where, "wb"):  # noqa: PT011
        pass
    with pytest.raises(type(wanted.value)) as raised:
        write_file(where, NEW)
    assert str(raised.value) == str(wanted.value)
    assert names(page.parent) == ["page"]


@pytest.mark.parametrize("where", ["new/", "new/.", "new/..", "new/../other", "./new//", ""])
def test_a_folder_that_is_not_there_becomes_no_file(page, monkeypatch, where):
    monkeypatch.chdir(page.parent)
    with pytest.raises(FileNotFoundError) as raised:
        write_file(where, NEW)
    assert raised.value.filename == where
    assert names(page.parent) == ["page"]


def test_a_device_stays_one(monkeypatch):
    # Should it come to a rename, the machine's devices stay: root could replace them.
    monkeypatch.setattr(os, "replace", lambda *_: pytest.fail("a device was to be replaced"))
    write_file(os.devnull, NEW)
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        write_file("/dev/full", NEW)


def test_the_only_writer_leaves_a_device_too(monkeypatch):
    monkeypatch.setattr(os, "replace", lambda *_: pytest.fail("a device was to be replaced"))
    monkeypatch.setattr(os, "unlink", lambda *_: pytest.fail("a file was to be removed"))
    with replacing(os.devnull, one_writer=True) as sink:
        assert sink.write(NEW) == len(NEW)


def test_a_pipe_gets_the_bytes(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_file(tmp_path / "pipe", NEW)
        assert os.read(reader, 100) == NEW
        assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    finally:
        os.close(reader)


def test_a_descriptor_of_a_pipe_or_of_a_removed_file(page):
    reader, writer = os.pipe()
    write_file(f"/dev/fd/{writer}", NEW)
    assert os.read(reader, 100) == NEW
    os.close(reader)
    os.close(writer)
    with page.open("r+b") as file:
        page.unlink()
        write_file(f"/dev/fd/{file.fileno()}", NEW)
        assert file.read() == NEW
    assert names(page.parent) == []


@pytest.mark.parametrize("way", ["itself", "spelt otherwise", "link", "hard link", "descriptor"])
def test_an_input_is_not_overwritten(page, way):
    out, inputs = page, [page]
    if way == "spelt otherwise":
        out = page.parent / ".." / page.parent.name / "page"
    elif way == "link":
        out = page.with_name("link")
        out.symlink_to(page)
    elif way == "hard link":
        out = page.with_name("link")
        out.hardlink_to(page)
    with page.open("rb") as file:
        if way == "descriptor":
            inputs = [file.fileno()]
        with pytest.raises(ValueError, match="expected a file that is not read, got"):
            write_file(out, NEW, inputs=inputs)
    assert page.read_bytes() == OLD
    # The control: another file may be written, and an input that is gone is none.
    write_file(page.with_name("other"), NEW, inputs=[*inputs[:0], page, page.with_name("none")])
    assert page.read_bytes() == OLD


@pytest.mark.parametrize("one_writer", [False, True])
def test_a_stream_appears_when_it_is_whole(page, one_writer):
    for path in (page, page.with_name("new.bin")):
        before = names(page.parent)
        with replacing(path, one_writer=one_writer) as sink:
            assert sink.write(b"one ") == 4
            assert sink.write(memoryview(array("H", [1, 2]))) == 4  # in bytes, not in numbers
            sink.write(memoryview(b""))
            (beside,) = set(names(page.parent)) - set(before)
            assert (beside == partial_name(path).name) == one_writer
            assert page.read_bytes() == OLD or path != page
        assert path.read_bytes() == b"one " + array("H", [1, 2]).tobytes()
    assert names(page.parent) == ["new.bin", "page"]


def test_a_body_that_raises_changes_nothing(page):
    def write_and_raise(error, one_writer):
        with replacing(page, one_writer=one_writer) as sink:
            sink.write(NEW)
            raise error

    for error in (ValueError("no"), KeyboardInterrupt(), OSError(errno.EIO, "bad", "elsewhere")):
        for one_writer in (False, True):
            with pytest.raises(type(error)) as caught:
                write_and_raise(error, one_writer)
            assert caught.value is error
            assert page.read_bytes() == OLD
            assert names(page.parent) == ["page"]


@pytest.mark.parametrize("size", [200, 1 << 20])
def test_a_full_disk_names_the_file_and_leaves_nothing(page, size):
    with file_limit(100), pytest.raises(OSError, match="File too large") as caught:
        write_file(page, b"x" * size)
    assert caught.value.filename == str(page)
    assert page.read_bytes() == OLD
    assert names(page.parent) == ["page"]
    with file_limit(100):
        write_file(page, b"x" * 100)  # The control: as much as there is room for.
    assert page.read_bytes() == b"x" * 100


@pytest.mark.parametrize("own", [RuntimeError("unexpected pos 64 vs 0"), None])
def test_a_librarys_own_error_does_not_hide_the_disks(tmp_path, own):
    def write_as_a_library():
        with replacing(tmp_path / "a.bin") as sink:
            try:
                sink.write(b"x" * (1 << 20))
            except OSError:
                if own is not None:
                    raise own from None
            sink.flush()

    with file_limit(100), pytest.raises(OSError, match="File too large") as caught:
        write_as_a_library()
    assert caught.value.filename == str(tmp_path / "a.bin")
    assert names(tmp_path) == []


def write_alone(path, data):
    with replacing(path, one_writer=True) as sink:
        sink.write(data)


def test_what_stands_in_the_way_is_named(tmp_path):
    path = tmp_path / "a.bin"
    partial_name(path).mkdir()
    with pytest.raises(OSError, match="directory") as caught:
        write_alone(path, NEW)
    assert caught.value.filename == str(partial_name(path))
    partial_name(path).rmdir()
    path.mkdir()
    with pytest.raises(OSError, match="directory") as caught:
        write_alone(path, NEW)
    assert caught.value.filename == str(path)
    assert names(tmp_path) == ["a.bin"]


def test_a_partial_file_that_was_left_is_not_written_through(page):
    path = page.with_name("a.bin")
    partial_name(path).symlink_to(page)
    write_alone(path, NEW)
    assert page.read_bytes() == OLD
    os.mkfifo(partial_name(path))
    write_alone(path, b"newer")  # A pipe nobody reads: opened, it would wait for ever.
    assert path.read_bytes() == b"newer"
    assert names(page.parent) == ["a.bin", "page"]


def test_the_only_writer_follows_a_link_to_another_folder(page):
    (page.parent / "far").mkdir()
    far, link = page.parent / "far" / "a.bin", page.with_name("a.bin")
    far.touch(0o600)
    link.symlink_to(far)
    assert partial_name(link) == far.with_suffix(".partial")
    write_alone(link, NEW)
    assert link.is_symlink()
    assert (far.read_bytes(), stat.S_IMODE(far.stat().st_mode)) == (NEW, 0o600)
    assert names(far.parent) == ["a.bin"]


def test_a_file_of_the_partial_name_is_somebodys(page):
    partial_name(page).write_bytes(OLD)
    write_file(page, NEW)
    assert partial_name(page).read_bytes() == OLD


# The null device is no file.
DIRECT = re.compile(r"\.write_(?:text|bytes)\(|\bopen\((?!os\.devnull)[^)]*[\"'][wax]\+?b?[\"']")
WRITERS = {"sdm_runtime/files/writing.py"}


def direct_writes(sources: dict[str, str]) -> set[str]:
    return {name for name, text in sources.items() if DIRECT.search(text)}


def test_the_library_writes_in_one_way():
    sources = {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for path in ROOT.joinpath("sdm_runtime").rglob("*.py")
    }
    assert direct_writes(sources) == WRITERS
    planted = {"a": "Path(p).write_text(x)", "b": "p.open('w')", "c": "open(p, 'xb')"}
    assert direct_writes(planted | {"d": "p.open()", "e": "open(os.devnull, 'wb')"}) == set(planted)
