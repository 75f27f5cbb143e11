"""Files that are read without waiting for ever."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from sdm_runtime.files import reading as files
from sdm_runtime.files.reading import open_regular, opened, read_file

DATA = b"some bytes"


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
        left.sendall(DATA)
        left.shutdown(socket.SHUT_WR)
        assert read_file(right.fileno()) == DATA
    with pytest.raises(OSError, match="Bad file descriptor: 'descriptor 9999'"):
        read_file(9999)
    with open("/dev/zero", "rb") as zeros, pytest.raises(OSError, match="not a regular file"):
        read_file(zeros.fileno())


def test_a_regular_file_is_opened_to_seek_in_and_nothing_else(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(DATA)
    with open_regular(tmp_path / "file") as file:
        assert file.read() == DATA
        assert file.seek(0) == 0
        assert file.read() == DATA
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for path in (tmp_path / "pipe", tmp_path / "socket", tmp_path, "/dev/zero"):
            with pytest.raises(OSError, match="not a regular file: a device or a pipe") as raised:
                open_regular(path)
            assert raised.value.filename == os.fspath(path)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")


def test_a_file_that_becomes_a_pipe_meanwhile_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    earlier = os.stat(tmp_path / "file")
    held = len(os.listdir("/dev/fd"))
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", lambda *_: earlier)
        with pytest.raises(OSError, match="not a regular file"):
            open_regular(tmp_path / "pipe")
    assert len(os.listdir("/dev/fd")) == held
