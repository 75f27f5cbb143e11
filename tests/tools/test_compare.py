"""compare.py flags what is slower than the committed figures, and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import compare
import pytest
import typer
from figures import Figure, Report, read_report, slug, write_report
from typer.testing import CliRunner

OLD = Report(
    "step_kernels",
    "python tools/bench/step_kernels.py",
    "NVIDIA H200",
    "2.11.0",
    "570.1",
    [Figure("read", "us", 100.0, 1.0), Figure("write", "us", 10.0), Figure("gemm", "us", 1.0)],
)


def changed(**times: float) -> Report:
    """The old report with other times; those it lacks are new figures."""
    old = {figure.name: figure for figure in OLD.figures}
    figures = [replace(old.get(n, Figure(n, "us", 1.0)), figure=us) for n, us in times.items()]
    return replace(OLD, figures=figures)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run the command on two reports, the old one committed for its device."""
    monkeypatch.setattr(compare, "BASELINES", tmp_path / "baselines")
    app = typer.Typer()
    app.command()(compare.main)

    def run(new: Report, *options: str, old: Report | None = OLD):
        if old is not None:
            path = compare.baseline_of(old)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_report(path, old)
        write_report(tmp_path / "new.json", new)
        return CliRunner().invoke(app, [str(tmp_path / "new.json"), *options])

    return run


@pytest.mark.parametrize(
    ("now", "options", "status"),
    [
        (100.0, [], 0),
        (50.0, [], 0),
        (105.0, [], 0),
        (105.2, [], 1),
        (105.2, ["--threshold", "6"], 0),
        (106.2, ["--threshold", "6"], 1),
        (100.1, ["--threshold", "0"], 1),
    ],
)
def test_what_is_slower_than_the_threshold_is_flagged(run, now, options, status) -> None:
    result = run(changed(read=now, write=10.0, gemm=1.0), *options)
    assert result.exit_code == status, result.output
    assert ("SLOWER" in result.output) == bool(status)
    percent = options[1] if options else "5"
    assert f"{status} of 3 figures are more than {percent}% slower" in result.output


def test_every_slow_figure_is_named(run) -> None:
    result = run(changed(read=120.0, write=9.0, gemm=2.0))
    flagged = re.findall(r"^ *(\w+) .*SLOWER", result.output, re.M)
    assert (result.exit_code, flagged) == (1, ["read", "gemm"])
    assert re.search(r"read +100 \+- 1 us +120 \+- 1 us +\+20.0%", result.output)


def test_new_and_gone_figures_are_said_and_not_flagged(run) -> None:
    result = run(changed(read=100.0, added=500.0))
    assert result.exit_code == 0
    assert "new: added\n" in result.output
    assert "gone: write\ngone: gemm\n" in result.output
    assert "0 of 1 figures" in result.output


def test_another_machine_is_said(run) -> None:
    same = run(OLD).output
    other = run(replace(OLD, torch="2.13.0", driver=None)).output
    said = "torch: 2.11.0 before, 2.13.0 now\ndriver: 570.1 before, not known now\n"
    assert other.startswith(said)
    assert not same.startswith("torch")


def test_figures_of_other_benchmarks_are_refused(run) -> None:
    result = run(changed(other=1.0))
    assert result.exit_code == compare.ERROR
    assert "expected figures that both files have" in result.output


def test_another_unit_is_refused(run) -> None:
    result = run(replace(OLD, figures=[Figure("read", "ms", 100.0)]))
    assert result.exit_code == compare.ERROR
    assert "read: expected us, as before, got ms" in result.output


def test_a_device_without_figures_is_refused_and_kept_on_request(run, tmp_path: Path) -> None:
    other = replace(OLD, device="NVIDIA B200")
    result = run(other)
    assert result.exit_code == compare.ERROR
    assert "nvidia_b200/step_kernels.json" in result.output
    assert run(other, "--keep").exit_code == 0
    assert read_report(tmp_path / "baselines/nvidia_b200/step_kernels.json") == other
    assert run(other, old=None).exit_code == 0


def test_keeping_says_what_became_slower(run) -> None:
    slower = changed(read=200.0, write=10.0, gemm=1.0)
    assert run(slower, "--keep").exit_code == 1
    assert run(slower, old=None).exit_code == 0


def test_a_file_may_be_named(run, tmp_path: Path) -> None:
    write_report(tmp_path / "other.json", changed(read=1.0))
    assert run(OLD, "--against", str(tmp_path / "other.json")).exit_code == 1
    assert run(OLD, "--against", str(tmp_path / "missing.json"), "--keep").exit_code == 2


COMMITTED = sorted(Path(compare.__file__).parent.glob("baselines/*/*.json"))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_committed_figures_are_where_they_are_looked_for(path: Path) -> None:
    report = read_report(path)
    assert compare.baseline_of(report) == path
    assert path.with_name(f"{report.bench}.json").is_file()
    assert Path(compare.__file__).with_name(f"{report.bench}.py").is_file()
    assert slug(report.device) != slug(report.device + "x")
    assert not compare.flagged(compare.changes(report, report), 0)


def test_the_command_loads_no_torch() -> None:
    code = "import sys, compare; sys.exit('torch' in sys.modules)"
    folder = Path(compare.__file__).parent
    assert subprocess.run([sys.executable, "-c", code], cwd=folder, timeout=60).returncode == 0
