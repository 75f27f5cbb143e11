"""The exit status of sdm-plan, whatever becomes of its output: 1 is for faults and differences."""

import json
import os
import subprocess
import sys

import inspect_cases as cases
import pytest
from plan_command import ROOT, run, run_unread

COMMANDS = {
    "show": ["show", "chain"],
    "show --json": ["show", "chain", "--json"],
    "steps": ["steps", "chain"],
    "steps --json": ["steps", "chain", "--json"],
    "diff": ["diff", "chain", "chain"],
    "diff --json": ["diff", "chain", "chain", "--json"],
    "verify": ["verify", "chain"],
    "verify --json": ["verify", "chain", "--json"],
    "bytes": ["bytes", "chain"],
    "bytes --json": ["bytes", "chain", "--json"],
    "report --json": ["report", "chain", "-o", "page.html", "--json"],
    "--help": ["--help"],
    "show --help": ["show", "--help"],
}
FOUND = {
    "diff": ["diff", "chain", "longer"],
    "diff --json": ["diff", "chain", "longer", "--json"],
    "verify": ["verify", "fault"],
    "verify --json": ["verify", "fault", "--json"],
}


@pytest.fixture
def folder(tmp_path):
    wrong = cases.edited_patch(cases.host_plans()[1], base=1, highest=5)
    contents = {
        "chain": cases.host_file(),
        "longer": cases.chain_file(list(cases.host_plans(steps=6)), steps=6),
        "fault": cases.with_plan(cases.host_plans(), 1, wrong),
    }
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_a_reader_that_goes_away_is_no_fault(folder, arguments):
    done = run_unread(folder, arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert run(folder, arguments).stdout, "nothing to read: the reader's end shows nothing"


@pytest.mark.parametrize("arguments", FOUND.values(), ids=FOUND)
def test_faults_and_differences_are_told_without_a_reader_as_well(folder, arguments):
    done = run_unread(folder, arguments)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("arguments", [*COMMANDS.values(), *FOUND.values()], ids=str)
@pytest.mark.parametrize(
    ("redirection", "reason"),
    [("> /dev/full", "no space left on device"), (">&-", "bad file descriptor")],
)
def test_output_that_cannot_be_written_is_status_two(folder, arguments, redirection, reason):
    done = run(folder, arguments, redirection)
    assert (done.returncode, done.stderr) == (2, f"sdm-plan: standard output: {reason}\n")


def test_what_prints_nothing_needs_no_output(folder):
    for redirection in ("> /dev/full", ">&-"):
        (folder / "page.html").unlink(missing_ok=True)
        done = run(folder, ["report", "chain", "-o", "page.html"], redirection)
        assert (done.returncode, done.stderr) == (0, "")
        assert (folder / "page.html").stat().st_size > 1000


@pytest.mark.parametrize("redirection", ["2>&-", "2> /dev/full"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "none"],
        ["show"],
        ["steps", "chain", "--step", "99"],
        ["report", "chain", "-o", "."],
    ],
    ids=str,
)
def test_a_message_that_cannot_be_written_changes_no_status(folder, arguments, redirection):
    done = run(folder, arguments, redirection)
    assert (done.returncode, done.stdout) == (2, "")
    assert run(folder, arguments).stderr, "no message: the redirection shows nothing"


def test_a_page_that_cannot_be_written_is_named(folder):
    done = run(folder, ["report", "chain", "-o", "/dev/full"])
    assert (done.returncode, done.stderr) == (2, "sdm-plan: /dev/full: no space left on device\n")
    done = run(folder, ["report", "chain", "-o", "none/page.html", "--json"])
    message = "none/page.html: no such file or directory"
    assert (done.returncode, done.stderr) == (2, f"sdm-plan: {message}\n")
    assert json.loads(done.stdout) == {"error": message}
    done = run(folder, ["report", "chain", "-o", "none/"])
    assert (done.returncode, done.stderr) == (2, "sdm-plan: none/: no such file or directory\n")
    assert not (folder / "none").exists()


def test_an_error_of_our_own_is_not_taken_for_a_fault(folder):
    program = (
        "import sys\n"
        "from sdm_runtime.inspect.commands import cli as c, diff as d\n"
        "def broken(a, b): raise KeyError('ours')\n"
        "d.diff = broken\n"
        "sys.argv = ['sdm-plan', 'diff', 'chain', 'chain']\n"
        "c.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "KeyError: 'ours'" in done.stderr
