"""The version is the installed package's, looked up when somebody asks."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import sdm_runtime
from sdm_runtime.inspect.commands.cli import app as plan_app
from sdm_runtime.train.run.cli import app as train_app

ROOT = Path(__file__).parents[2]


@pytest.fixture
def installed(monkeypatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: f"1.2.3 of {name}")


@pytest.fixture
def not_installed(monkeypatch) -> None:
    def refuse(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", refuse)


@pytest.mark.usefixtures("installed")
def test_the_installed_version() -> None:
    assert sdm_runtime.__version__ == "1.2.3 of sdm-runtime"


@pytest.mark.usefixtures("not_installed")
def test_a_package_that_is_only_on_the_path_has_none() -> None:
    assert not hasattr(sdm_runtime, "__version__")
    with pytest.raises(AttributeError, match="only on the path, not installed"):
        _ = sdm_runtime.__version__


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("app", [plan_app, train_app])
def test_commands_print_it(app: typer.Typer) -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.output) == (0, "sdm_runtime 1.2.3 of sdm-runtime\n")


@pytest.mark.usefixtures("not_installed")
@pytest.mark.parametrize("app", [plan_app, train_app])
def test_commands_say_where_there_is_none(app: typer.Typer) -> None:
    done = CliRunner().invoke(app, ["--version"], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert "only on the path, not installed" in done.output


def test_importing_looks_nothing_up() -> None:
    # -S: what site-packages loads at the start of every process is not this package's.
    program = "import sys, sdm_runtime; print('importlib.metadata' in sys.modules)"
    words = [sys.executable, "-S", "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "False\n"
