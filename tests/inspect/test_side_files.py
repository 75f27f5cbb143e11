"""The files that sdm-plan reads beside a plan: guarded as plan files are."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import inspect_cases as cases
import pytest
from plan_command import run

from sdm_runtime.inspect.reading.timeline import KernelTime, load_trace, make_trace
from sdm_runtime.inspect.verify.bindings import load_bindings
from sdm_runtime.inspect.verify.device import load_facts

COMMANDS = {
    "bindings": ["verify", "chain", "--bindings"],
    "images": ["verify", "chain", "--device-images"],
    "trace": ["report", "chain", "-o", "page.html", "--trace"],
}
LOADERS: dict[str, Callable[[Path], Any]] = {
    "bindings": load_bindings,
    "images": load_facts,
    "trace": load_trace,
}


def good(kind) -> object:
    if kind == "bindings":
        bound = cases.good_bindings()
        return {name: {"address": b.address, "bytes": b.bytes} for name, b in bound.items()}
    if kind == "images":
        entries = [{"name": name, "waits": True} for name in cases.FACTS.waits]
        return {"images": [{"sha256": cases.IMAGE.hex(), "entries": entries}]}
    kernel = {"name": "k", "start_us": 0, "duration_us": 1.5, "stream": 7}
    return {"format": "sdm-trace", "version": 1, "source": "cuda", "kernels": [kernel]}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "chain").write_bytes(cases.cuda_file())
    (tmp_path / "page.html").write_text("an older page")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 1 << 40)
    (tmp_path / "deep").write_text("[" * 100_000)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    return tmp_path


def assert_refused(folder, kind, name, reason):
    done = run(folder, [*COMMANDS[kind], name])
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"sdm-plan: {name}: ")
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1
    assert (folder / "page.html").read_text() == "an older page"


@pytest.mark.parametrize("kind", COMMANDS)
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("pipe", "a pipe that nobody writes to"),
        ("zeros", "not a regular file or a pipe"),
        ("folder", "not a regular file or a pipe"),
        ("huge", "expected at most 268435456 bytes, got more"),
        ("none", "no such file or directory"),
        ("deep", "nested too deeply"),
        ("binary", "can't decode byte 0xff"),
    ],
)
def test_what_is_no_side_file_is_refused_at_once(folder, kind, name, reason):
    assert_refused(folder, kind, name, reason)


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_side_file_comes_through_a_pipe(folder, kind):
    reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    (folder / "file").write_text(json.dumps(good(kind)))
    done = run(folder, [*COMMANDS[kind], "file"])
    with open(folder / "pipe", "wb") as pipe:
        thread = threading.Thread(target=lambda: pipe.write(json.dumps(good(kind)).encode()))
        thread.start()
        thread.join()
    piped = run(folder, [*COMMANDS[kind], "pipe"])
    os.close(reader)
    assert (piped.returncode, piped.stdout) == (done.returncode, done.stdout)
    assert done.returncode != 2


WRONG_MEMBERS = {
    "bindings": [
        ("[]", "bindings: expected an object, got a list"),
        ('{"x": 3}', "x: expected an object, got 3"),
        ('{"x": {"bytes": 4}}', "x: address: expected an integer, got none"),
        ('{"x": {"address": 1e400, "bytes": 4}}', "a float can hold, got 1e400"),
        ('{"x": {"address": NaN, "bytes": 4}}', "expected a number, got NaN"),
        ('{"x": {"address": 1.5, "bytes": 4}}', "x: address: expected an integer, got 1.5"),
        ('{"x": {"address": "7", "bytes": 4}}', "x: address: expected an integer, got '7'"),
        ('{"x": {"address": 16, "bytes": -4}}', "x: expected 64-bit addresses, got -4 bytes"),
        ('{"x": {"address": 1' + "0" * 30 + ', "bytes": 4}}', "x: expected 64-bit addresses"),
        ('{"x": {"address": 16, "bytes": 4, "dtype": 3}}', "x: dtype: expected a string, got 3"),
    ],
    "images": [
        ("[]", "expected an object, got a list"),
        ('{"images": {}}', "images: expected a list, got an object"),
        ('{"images": [3]}', "images: expected an object, got 3"),
        ('{"images": [{"sha256": 3, "entries": []}]}', "sha256: expected a string, got 3"),
        ('{"images": [{"sha256": "", "entries": [[]]}]}', "entries: expected an object"),
        (
            '{"images": [{"sha256": "", "entries": [{"name": "gx_gwr_bf16", "waits": Infinity}]}]}',
            "expected a number, got Infinity",
        ),
        (
            '{"images": [{"sha256": "", "entries": [{"name": ["k"], "waits": true}]}]}',
            "name: expected a string, got a list",
        ),
        (
            '{"images": [{"sha256": "", "entries": [{"name": "k", "waits": "no"}]}]}',
            "waits: expected true or false, got 'no'",
        ),
    ],
    "trace": [
        ("[]", "trace: expected an object, got a list"),
        ('{"format": "sdm-trace", "version": 2}', "format: expected sdm-trace 1, got sdm-trace 2"),
        ("kernels 3", "kernels: expected a list, got 3"),
        ("kernels [3]", "kernels[0]: entry: expected an object, got 3"),
        ('kernels [{"name": "k"}]', "kernels[0]: stream: expected an integer, got none"),
        ("start 1e400", "a float can hold, got 1e400"),
        ("start NaN", "expected a number, got NaN"),
        (
            "start 1" + "0" * 400,
            "kernels[0]: start_us: expected a number that a float can hold, got 1000",
        ),
        ('start "0"', "kernels[0]: start_us: expected a number, got '0'"),
        ("start -1e308", "kernels[0]: expected times up to 1e+15 us, got 1 us from -1e+308 us"),
        ("start 1e16", "kernels[0]: expected times up to 1e+15 us"),
    ],
}


def trace_text(content: str) -> str:
    """A trace with something else as its kernels, or as the start of its one kernel."""
    word, _, rest = content.partition(" ")
    if word not in ("kernels", "start"):
        return content
    kernels = rest
    if word == "start":
        kernels = f'[{{"name": "k", "start_us": {rest}, "duration_us": 1, "stream": 0}}]'
    return f'{{"format": "sdm-trace", "version": 1, "source": "cuda", "kernels": {kernels}}}'


@pytest.mark.parametrize(
    ("kind", "content", "reason"),
    [(kind, *case) for kind, wrong in WRONG_MEMBERS.items() for case in wrong],
    ids=lambda value: value[:40],
)
def test_a_wrong_member_is_named(folder, kind, content, reason):
    (folder / "file").write_text(trace_text(content))
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        LOADERS[kind](folder / "file")
    assert str(raised.value).startswith(f"{folder / 'file'}: not a ")
    assert reason in str(raised.value)


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_good_file_is_read(folder, kind):
    (folder / "file").write_text(json.dumps(good(kind)))
    assert LOADERS[kind](folder / "file")


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_file_cut_anywhere_is_refused(folder, kind):
    whole = json.dumps(good(kind))
    for end in range(len(whole)):
        (folder / "file").write_text(whole[:end])
        with pytest.raises(ValueError, match="not a "):
            LOADERS[kind](folder / "file")


def test_numbers_that_no_trace_can_hold_are_not_saved(tmp_path):
    trace = make_trace("cuda", [KernelTime("k", 0.0, float("inf"))])
    (tmp_path / "trace").write_text("an older trace")
    with pytest.raises(ValueError, match="JSON"):
        trace.save(tmp_path / "trace")
    assert (tmp_path / "trace").read_text() == "an older trace"
