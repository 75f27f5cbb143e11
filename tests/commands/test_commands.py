"""The console scripts: signals while they load, and that each is there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from sdm_runtime import commands

ROOT = Path(__file__).parents[2]
# Stands in for a module that takes long to load, and takes any exception for a reason to go on.
SLOW = """
import sys, time
print("loading", flush=True)
try:
    time.sleep(60)
except BaseException:
    raise ImportError("not here")
"""
MODULES = {"sdm-train": "sdm_runtime.train", "sdm-plan": "sdm_runtime.inspect"}
KINDS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def take_signals() -> None:
    """Children ignore what their parent does: SIGINT in the background, SIGHUP under nohup."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for kind in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(kind, signal.SIG_DFL)


def end_by(kind: int, folder: Path, module: str, **variables: str) -> tuple[int, str, str]:
    """Return status, output and errors of a command that gets a signal while it loads typer."""
    (folder / "typer.py").write_text(SLOW)
    paths = os.pathsep.join([str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        env=os.environ | {"PYTHONPATH": paths} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=take_signals,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "loading\n"
    process.send_signal(kind)
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_while_it_loads_gets_one_line(tmp_path: Path, name: str, kind: int) -> None:
    line = f"{name}: stopped\n"
    assert end_by(kind, tmp_path, MODULES[name]) == (130, "", line)


def test_of_several_processes_one_says_so(tmp_path: Path) -> None:
    assert end_by(signal.SIGTERM, tmp_path, MODULES["sdm-train"], RANK="1") == (130, "", "")


@pytest.mark.parametrize("kind", KINDS)
def test_a_later_signal_lets_the_command_clean_up(monkeypatch, capfd, kind: int) -> None:
    cleaned = []

    def work() -> None:
        try:
            os.kill(os.getpid(), kind)
            time.sleep(20)
        finally:
            cleaned.append(True)

    monkeypatch.setattr("sdm_runtime.inspect.commands.cli.main", work)
    before = signal.signal(kind, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as end:
            commands.plan()
    finally:
        signal.signal(kind, before)
    assert (end.value.code, cleaned) == (130, [True])
    assert capfd.readouterr().err == "sdm-plan: stopped\n"


def test_signals_are_as_before_afterwards(monkeypatch) -> None:
    before = [signal.getsignal(kind) for kind in KINDS]
    during: list[object] = []
    monkeypatch.setattr(
        "sdm_runtime.train.run.cli.main", lambda: during.extend(map(signal.getsignal, KINDS))
    )
    commands.train()
    assert [signal.getsignal(kind) for kind in KINDS] == before
    assert all(old is signal.SIG_IGN or old != new for old, new in zip(before, during, strict=True))


def test_scripts_are_these() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {name: f"sdm_runtime.commands:{name[4:]}" for name in MODULES}
    assert all(callable(getattr(commands, name[4:])) for name in MODULES)


def test_loading_it_loads_little() -> None:
    program = "import sys, sdm_runtime.commands; print({'torch', 'typer', 'rich'} & {*sys.modules})"
    words = [sys.executable, "-c", program]
    assert subprocess.run(words, capture_output=True, text=True, cwd=ROOT).stdout == "set()\n"
