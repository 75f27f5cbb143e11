"""Files that are read whole, and files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
import threading
from pathlib import Path

import pytest

from sdm_runtime import files
from sdm_runtime.files import opened, read_file, write_file

ROOT = Path(__file__).parents[1]
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


def test_a_device_stays_one(tmp_path):
    write_file(os.devnull, NEW)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        write_file("/dev/full", NEW)
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


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


def test_what_is_no_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for path, message in [
            ("/dev/zero", "not a regular file or a pipe"),
            (tmp_path, "not a regular file or a pipe"),
            (tmp_path / "pipe", "a pipe that nobody writes to"),
            (tmp_path / "socket", "No such device"),
            (tmp_path / "none", "No such file"),
        ]:
            with pytest.raises(OSError, match=message) as raised:
                read_file(path)
            assert raised.value.filename == os.fspath(path)


def test_a_pipe_whose_writer_comes_with_its_bytes_later(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    held = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(tmp_path / "pipe", os.O_WRONLY)
    os.close(held)
    data = os.urandom(300_000)  # more than a pipe holds

    def write():
        with open(writer, "wb") as file:
            file.write(data)

    with opened(tmp_path / "pipe") as reader:
        thread = threading.Thread(target=write)
        thread.start()
        assert reader.read(1 << 20) == data
        thread.join()


def test_no_more_is_read_than_asked_for(tmp_path):
    (tmp_path / "file").write_bytes(b"0123456789")
    assert read_file(tmp_path / "file", 10) == b"0123456789"
    with pytest.raises(OSError, match="expected at most 9 bytes, got more"):
        read_file(tmp_path / "file", 9)
    with opened(tmp_path / "file") as reader:
        assert [reader.read(4), reader.read(4), reader.read(4)] == [b"0123", b"4567", b"89"]
    os.truncate(tmp_path / "file", 1 << 40)
    with pytest.raises(OSError, match=f"expected at most {files.MOST_BYTES} bytes, got more"):
        read_file(tmp_path / "file")


def test_a_descriptor_is_read_from_where_it_stands(tmp_path):
    (tmp_path / "file").write_bytes(b"0123456789")
    with (tmp_path / "file").open("rb", buffering=0) as file:
        file.read(4)
        assert read_file(file.fileno()) == b"456789"
        assert not file.closed
    left, right = socket.socketpair()
    with left, right:
        left.sendall(NEW)
        left.shutdown(socket.SHUT_WR)
        assert read_file(right.fileno()) == NEW
    with pytest.raises(OSError, match="Bad file descriptor: 'descriptor 9999'"):
        read_file(9999)
    with open("/dev/zero", "rb") as zeros, pytest.raises(OSError, match="not a regular file"):
        read_file(zeros.fileno())


DIRECT = re.compile(r"\.write_(?:text|bytes)\(|\bopen\([^)]*[\"'][wax]\+?b?[\"']")
WRITERS = {"sdm_runtime/files.py"}


def direct_writes(sources: dict[str, str]) -> set[str]:
    return {name for name, text in sources.items() if DIRECT.search(text)}


def test_the_library_writes_in_one_way():
    sources = {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for path in ROOT.joinpath("sdm_runtime").rglob("*.py")
        if "train" not in path.parts  # its files are its own, tested with it
    }
    assert direct_writes(sources) == WRITERS
    assert direct_writes({"a": "Path(p).write_text(x)", "b": "p.open('w')", "c": "p.open()"}) == {
        "a",
        "b",
    }
