"""sdm-plan on standard input and on pipes, and where it puts its page."""

import json
import os
import subprocess

import inspect_cases as cases
import pytest
from plan_command import run, run_piped

from sdm_runtime.inspect import load, write_report
from sdm_runtime.inspect.reading.timeline import KernelTime, make_trace


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "chain").write_bytes(cases.host_file())
    make_trace("host", [KernelTime("gx_gwr", 0.0, 1.0)]).save(tmp_path / "trace")
    return tmp_path


COMMANDS = {
    "show": ["show", "FILE"],
    "steps": ["steps", "FILE"],
    "diff": ["diff", "chain", "FILE"],
    "diff the other": ["diff", "FILE", "chain"],
    "verify": ["verify", "FILE", "--json"],
    "bytes": ["bytes", "FILE"],
    "report": ["report", "FILE", "-o", "page.html"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_every_command_reads_standard_input(folder, command, name):
    wanted = run(folder, ["chain" if word == "FILE" else word for word in command])
    assert wanted.returncode == 0
    if command[0] == "report":
        (folder / "page.html").unlink()
    words = [name if word == "FILE" else word for word in command]
    done = run_piped(folder, words, cases.host_file())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == wanted.stdout
    with (folder / "chain").open("rb") as file:  # redirected
        done = run(folder, words, stdin=file)
    assert (done.returncode, done.stdout) == (0, wanted.stdout)
    if command[0] == "report":
        assert ("standard input" if name == "-" else "stdin") in (folder / "page.html").read_text()


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_damaged_standard_input_is_named(folder, name):
    called = "standard input" if name == "-" else name
    for data in (cases.host_file()[:-1], cases.host_file() + b"\0" * 30_000):
        done = run_piped(folder, ["show", name], data)
        assert done.returncode == 2
        assert done.stderr.startswith(f"sdm-plan: {called}: truncated or padded: the header says")


def test_standard_input_without_end_is_read_no_further_than_needed(folder):
    with subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.PIPE) as zeros:
        done = run(folder, ["show", "-"], stdin=zeros.stdout)
        zeros.kill()
    assert done.returncode == 2
    assert "standard input: bad magic" in done.stderr


def test_standard_input_that_is_none(folder):
    for redirection, reason in [
        ("< /dev/null", "not a regular file or a pipe"),
        ("<&-", "bad file descriptor"),
    ]:
        done = run(folder, ["show", "-"], redirection)
        assert (done.returncode, done.stderr) == (2, f"sdm-plan: standard input: {reason}\n")
    done = run_piped(folder, ["show", "-"], b"")
    assert done.returncode == 2
    assert "standard input: truncated: 0 bytes" in done.stderr
    done = run_piped(folder, ["diff", "-", "-"], cases.host_file())
    assert done.returncode == 2
    assert "expected '-' for one of two files, got it for both" in done.stderr


def test_a_file_named_like_standard_input(folder):
    (folder / "-").write_bytes(cases.host_file())
    assert run(folder, ["show", "./-"]).returncode == 0


@pytest.mark.parametrize("out", ["chain", "trace", "link", "hard", "folder/../chain"])
@pytest.mark.parametrize("as_json", [False, True])
def test_a_report_overwrites_nothing_that_it_reads(folder, out, as_json):
    (folder / "folder").mkdir()
    (folder / "link").symlink_to("chain")
    (folder / "hard").hardlink_to(folder / "chain")
    before = {name: (folder / name).read_bytes() for name in ("chain", "trace")}
    options = ["-o", out, "--trace", "trace", *(["--json"] if as_json else [])]
    done = run(folder, ["report", "chain", *options])
    assert done.returncode == 2
    assert f"sdm-plan: {out}: expected a file that is not read" in done.stderr
    assert {name: (folder / name).read_bytes() for name in before} == before
    assert load(folder / "chain").steps == cases.SHAPE.steps


def test_nor_the_file_that_is_redirected_into_it(folder):
    with (folder / "chain").open("rb") as file:
        done = run(folder, ["report", "-", "-o", "chain"], stdin=file)
    assert done.returncode == 2
    assert "expected a file that is not read, got standard input" in done.stderr
    assert (folder / "chain").read_bytes() == cases.host_file()


def test_a_name_that_is_no_utf8_is_shown_as_what_it_is(folder):
    name = os.fsdecode(b"odd-\xff.chain")
    (folder / name).write_bytes(cases.host_file())
    (folder / "page.html").write_text("an older page")
    done = run(folder, ["report", name, "-o", "page.html"])
    assert (done.returncode, done.stderr) == (0, "")
    assert "<h1>odd-\\xff.chain</h1>" in (folder / "page.html").read_text()
    done = run(folder, ["report", "chain", "-o", os.fsdecode(b"page-\xff.html"), "--json"])
    assert done.returncode == 0
    size = json.loads(done.stdout)["bytes"]
    assert (folder / os.fsdecode(b"page-\xff.html")).stat().st_size == size


def test_a_name_in_a_trace_that_is_no_text(folder):
    trace = json.loads((folder / "trace").read_text())
    trace["kernels"][0]["name"] = "half \ud800"
    (folder / "trace").write_text(json.dumps(trace))
    write_report(folder / "chain", folder / "page.html", trace=folder / "trace")
    assert "half \\ud800" in (folder / "page.html").read_text()


def test_an_older_page_stays_when_the_new_one_cannot_be_made(folder, monkeypatch):
    (folder / "page.html").write_text("an older page")
    monkeypatch.setattr(os, "replace", lambda *_: os.stat(folder / "none"))
    with pytest.raises(FileNotFoundError):
        write_report(folder / "chain", folder / "page.html")
    assert (folder / "page.html").read_text() == "an older page"
    assert not list(folder.glob(".*"))


def test_a_page_goes_to_a_pipe(folder):
    done = run(folder, ["report", "chain", "-o", "/dev/stdout"])
    assert done.returncode == 0
    assert done.stdout.startswith("<!doctype html>")
    run(folder, ["report", "chain", "-o", "page.html"])
    assert done.stdout == (folder / "page.html").read_text()
