"""The benchmark of the whole layer on a GPU: graphs, and kernels by their names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import layer
from figures import read_report


def test_a_run_writes_figures_of_graphs_and_kernels(tmp_path: Path) -> None:
    out = tmp_path / "layer.json"
    options = ["--shapes", "tiny", "--rounds", "2", "--round-ms", "1", "--batches", "1", "2"]
    options += ["--profile", "5", "--json", str(out)]
    command = [sys.executable, layer.__file__, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = {each.name.removeprefix("tiny uniform "): each for each in read_report(out).figures}
    for name in ("train", "prefill", "decode batch 1", "layers batch 2", "rows of 8 batch 1"):
        assert figures[f"{name} eager"].figure > 0
        assert figures[f"{name} graph"].figure > 0
    assert figures["train kernels"].figure > figures["decode kernels"].figure > 0
    parts = {name for name in figures if " part " in name}
    assert {"train part operation's chain", "decode part operation's chain"} & parts
