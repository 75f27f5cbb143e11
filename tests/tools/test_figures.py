"""Every benchmark writes its figures in one form, and what is not of it is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import backward
import backward_breakdown
import host_launch
import pytest
import qualify
import step_kernels
import train_profile
from figures import Figure, Report, of_samples, read_report, slug, this_command, write_report

from sdm_runtime.qualify.operand_shapes import Sizes

BENCH = Path(__file__).resolve().parents[2] / "tools/bench"
BENCHMARKS = [p for p in sorted(BENCH.glob("*.py")) if "__main__" in p.read_text()]
BENCHMARKS.remove(BENCH / "compare.py")
REPORT = Report(
    "step_kernels",
    "python tools/bench/step_kernels.py",
    "NVIDIA H200",
    "2.11.0",
    None,
    [Figure("a", "us", 2.5, 0.25, {"floor_us": 1.5}), Figure("b", "x", 1.0)],
)


def by_name(figures: list[Figure]) -> dict[str, tuple[str, float, float | None]]:
    return {each.name: (each.unit, each.figure, each.spread) for each in figures}


def uses_the_form(text: str) -> bool:
    """Whether a benchmark offers --json and leaves the writing to figures.py."""
    return '"--json"' in text and "save(options.json, " in text.replace("args", "options")


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_every_benchmark_writes_the_one_form(path: Path) -> None:
    text = path.read_text()
    assert uses_the_form(text)
    assert "json.dump" not in text
    assert not uses_the_form(text.replace("save(", "dump("))


def test_a_written_report_is_read_back(tmp_path: Path) -> None:
    write_report(tmp_path / "a.json", REPORT)
    assert read_report(tmp_path / "a.json") == REPORT


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"bench": None}, "bench: expected a string, got None"),
        ({"device": 1}, "device: expected a string, got 1"),
        ({"figures": {}}, "figures: expected a list"),
        ({"figures": [1]}, "figures: expected an object, got 1"),
        ({"figures": [{"unit": "us", "figure": 1}]}, "name: expected a string, got none"),
        ({"figures": [{"name": "a", "unit": "us", "figure": "1"}]}, "figure: expected a number"),
        ({"figures": [{"name": "a", "unit": "s", "figure": 1}]}, "a: unit: expected one of us, ms"),
        ({"figures": [{"name": "a", "unit": "us", "figure": -1}]}, "a: expected a figure of 0"),
        ({"figures": 2 * [{"name": "a", "unit": "us", "figure": 1}]}, "every name once, got a 2 x"),
    ],
)
def test_another_form_is_refused(tmp_path: Path, changed: dict, message: str) -> None:
    path = tmp_path / "a.json"
    write_report(path, REPORT)
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(ValueError, match=message) as error:
        read_report(path)
    assert str(error.value).startswith(f"{path}: ")


def test_a_wrong_report_is_not_written(tmp_path: Path) -> None:
    twice = [Figure("a", "us", 1.0), Figure("a", "us", 2.0)]
    with pytest.raises(ValueError, match="every name once"):
        write_report(tmp_path / "a.json", Report("b", "c", "d", "t", None, twice))
    assert list(tmp_path.iterdir()) == []


def test_samples_give_their_median_and_spread() -> None:
    assert of_samples("a", "us", [3.0, 1.0, 2.5], n=3) == Figure("a", "us", 2.5, 2.0, {"n": 3})


def test_a_command_says_all_but_where_the_json_goes() -> None:
    words = ["/x/tools/bench/a.py", "--rounds", "3", "--json", "o.json", "--slots", "one two"]
    wanted = "python tools/bench/a.py --rounds 3 --slots 'one two'"
    assert this_command(words) == wanted
    words[3:5] = ["--json=o.json"]
    assert this_command(words) == wanted


def test_a_device_names_its_folder() -> None:
    assert slug("NVIDIA H200") == "nvidia_h200"
    assert slug("AMD EPYC-7B13 (2), 1 threads") == "amd_epyc_7b13_2_1_threads"


def test_whole_calls_become_figures() -> None:
    samples = {"forward": [8.0, 9.0, 8.5], "plan": [150.0, 160.0, 170.0]}
    assert by_name(backward.figures_of(backward.Row("s", "uniform", samples, "auto", "on"))) == {
        "s uniform forward": ("ms", 8.5, 1.0),
        "s uniform plan": ("us", 160.0, 20.0),
    }


def test_profiled_kernels_become_figures() -> None:
    spans = [("sort", 0, 2e3), ("gx_gwr_x", 3e3, 4e3), ("gx_gwr_x", 5e3, 6e3), ("tail", 6e3, 9e3)]
    kernels = [backward_breakdown.Kernel(*span) for span in spans]
    assert by_name(backward_breakdown.figures_of("s", kernels)) == {
        "s: all": ("ms", 9.0, None),
        "s: before": ("ms", 3.0, None),
        "s: chain": ("ms", 3.0, None),
        "s: after": ("ms", 3.0, None),
        "s: gx_gwr_x": ("ms", 2.0, None),
        "s: tail": ("ms", 3.0, None),
        "s: sort": ("ms", 2.0, None),
    }


def test_launches_become_figures() -> None:
    row = host_launch.Row("chain.run", True, [3.0, 3.5, 4.0], 1.25)
    assert by_name(host_launch.figures_of(row)) == {
        "chain.run pdl": ("us", 3.5, 1.0),
        "chain.run pdl, to the bare loop": ("x", 1.25, None),
    }
    assert len(host_launch.figures_of(row._replace(to_bare=None))) == 1


def test_picks_become_figures() -> None:
    us = {"library": [4.0, 4.0], "plain": [2.0, 2.0], "pdl": [1.0, 1.0]}
    row = qualify.Row(Sizes(2, 16, 64), us, "pdl", "equal bits", (), 9.0)
    assert by_name(qualify.figures_of(row)) == {
        "2, 16, 64: library": ("us", 4.0, 0.0),
        "2, 16, 64: plain": ("us", 2.0, 0.0),
        "2, 16, 64: pdl": ("us", 1.0, 0.0),
        "2, 16, 64: picked, to the library": ("x", 0.25, None),
    }


def test_parts_of_a_step_become_figures() -> None:
    figures = train_profile.figures_of("text", Counter({"matmuls": 7}), 10.0, 0.25)
    assert by_name(figures) == {
        "text: step": ("us", 10.0, None),
        "text: matmuls": ("us", 7.0, None),
        "text: outside matmuls, kernels and optimizer": ("share", 0.25, None),
    }


def test_a_step_kernel_becomes_a_figure(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    graph = SimpleNamespace(replay=None)
    chain = SimpleNamespace(plans=[SimpleNamespace(geometry={"grid": 1})], graph=lambda: graph)
    monkeypatch.setattr(step_kernels, "make_operands", lambda *_: {})
    monkeypatch.setattr(step_kernels, "make_chains", lambda *_: {"gx_gwr pdl": chain})
    monkeypatch.setattr(step_kernels, "library_graph", lambda *_: graph)
    monkeypatch.setattr(step_kernels, "time_in_turn", lambda made, _: {n: [2, 3] for n in made})
    kernel, library = step_kernels.time_shape(step_kernels.SHAPES[0], "uniform")
    assert (kernel.name, kernel.unit) == ("long128 uniform gx_gwr pdl", "us")
    assert (kernel.figure, kernel.spread) == (2.5, 1)
    assert kernel.details == {"floor_us": pytest.approx(0.238, abs=1e-3), "geometry": {"grid": 1}}
    assert (library.name, library.details) == ("long128 uniform baddbmm", {"floor_us": None})
    assert capsys.readouterr().out.startswith(
        "long128   uniform  gx_gwr pdl           2.50 +-  1.00"
    )


def test_a_benchmark_of_the_host_runs_and_writes_the_form(tmp_path: Path) -> None:
    out = tmp_path / "twins.json"
    options = ["--bank-mib", "2", "--rounds", "1", "--only", "hd 128 bf16/bf16/bf16"]
    command = [sys.executable, str(BENCH / "host_twins.py"), *options, "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    report = read_report(out)
    assert report.bench == "host_twins"
    assert report.command.endswith("--only 'hd 128 bf16/bf16/bf16'")
    assert report.driver is None
    assert {figure.name.split(",")[0] for figure in report.figures} >= {"copy", "gx_pa2", "fx_read"}
    assert all(figure.figure > 0 for figure in report.figures)
