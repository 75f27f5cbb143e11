"""Several processes: the same losses as one process with the whole batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sdm_runtime.train.checkpoints.checkpoint import load_checkpoint
from sdm_runtime.train.config import ConfigError
from sdm_runtime.train.run.cli import app
from sdm_runtime.train.trainer.distributed import World, choose_device

ROOT = Path(__file__).parents[2]
SIZES = [
    *("--steps", "5", "--batch-size", "4", "--length", "40", "--eval-length", "50"),
    *("--dim", "16", "--blocks", "2", "--slots", "16", "--writes", "2", "--reads", "2"),
    *("--eval-every", "5", "--chunk-size", "16", "--device", "cpu"),
]


def run_processes(count: int, words: list[str]) -> subprocess.CompletedProcess[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *launcher, "-m", "sdm_runtime.train", *words],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
        timeout=300,
    )


def losses(out: Path) -> list[float]:
    return json.loads((out / "report.json").read_text())["history"]["losses"]


def test_two_processes_agree_with_one(text_files: list[Path], tmp_path: Path) -> None:
    one, two, half = (tmp_path / name for name in ("one", "two", "half"))
    words = [*SIZES, *map(str, text_files), "--out"]
    app([*words, str(one)], standalone_mode=False)
    done = run_processes(2, [*words, str(two)])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("wrote report.json") == 1
    assert losses(two) == pytest.approx(losses(one), rel=2e-5)
    report = json.loads((two / "report.json").read_text())
    assert report["environment"]["processes"] == 2
    # Control: half the batch is another run.
    app([*words, str(half), "--batch-size", "2"], standalone_mode=False)
    assert losses(half) != pytest.approx(losses(one), rel=2e-5)


@pytest.mark.slow
def test_three_processes_resume_with_the_same_bits(text_files: list[Path], tmp_path: Path) -> None:
    # Three: of two numbers the sum is the same in any order.
    words = [*SIZES, *map(str, text_files), "--batch-size", "6", "--out"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run_processes(3, [*words, str(whole)]).returncode == 0
    assert run_processes(3, [*words, str(parts), "--stop-after", "2"]).returncode != 0
    resumed = run_processes(3, ["--resume", "--device", "cpu", "--out", str(parts)])
    assert resumed.returncode == 0, resumed.stderr
    one, other = (load_checkpoint(out / "checkpoint.pt") for out in (whole, parts))
    assert one.step == other.step == 5
    assert one.content["history"]["losses"] == other.content["history"]["losses"]
    for name, tensor in one.content["model"].items():
        assert torch.equal(tensor, other.content["model"][name]), name


def test_rows_make_up_the_batch() -> None:
    batch = torch.arange(12).view(6, 2)
    worlds = [World(rank, 3, torch.device("cpu")) for rank in range(3)]
    assert torch.equal(torch.cat([world.rows(batch) for world in worlds]), batch)
    assert [world.is_main for world in worlds] == [True, False, False]
    worlds[0].check_batch(6)
    with pytest.raises(ConfigError, match="a multiple of the 3 processes, got 7"):
        worlds[0].check_batch(7)


def test_a_process_gets_its_own_device(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert choose_device("auto", 1) == torch.device("cpu")
    with pytest.raises(ConfigError, match="torch sees 0 GPUs, not cuda:0"):
        choose_device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("auto", 1) == torch.device("cuda:1")
    assert choose_device("cpu", 1) == torch.device("cpu")
    for name in ("tpu", "meta", ""):
        with pytest.raises(ConfigError, match="device: expected auto, cpu, cuda or cuda:N, got"):
            choose_device(name, 0)
