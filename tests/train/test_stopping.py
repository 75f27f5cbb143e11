"""Stopping ``sdm-train`` by signals, in processes of its own: one, and several under torchrun."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from sdm_runtime.train.checkpoints.checkpoint import load_checkpoint
from sdm_runtime.train.run import cli, run_text
from sdm_runtime.train.trainer.loop import Trainer

from .commands import SIZES, TEXT_SIZES, losses, names, start

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
LONG = [*TEXT_SIZES, "--steps", 100_000, "--eval-every", 5]


def wait_for_line(process: subprocess.Popen[str], pattern: str) -> str:
    """Return what was printed up to a line that matches."""
    assert process.stdout is not None
    printed = ""
    for line in process.stdout:
        printed += line
        if re.search(pattern, line):
            return printed
    raise AssertionError(printed + process.stderr.read())


def end_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return status and stderr."""
    try:
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, err


def rank_of(pid: int) -> str | None:
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next((v[5:].decode() for v in variables if v.startswith(b"RANK=")), None)


def ranks(launcher: int) -> dict[str, int]:
    """Return the processes of a launcher by their rank."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return {rank: int(pid) for pid in children if (rank := rank_of(int(pid))) is not None}


def stand_in_the_way(path: Path) -> None:
    for _ in range(10_000):  # it may be there just now, and be renamed next
        with suppress(FileExistsError):
            return path.mkdir()
        time.sleep(0.001)
    raise AssertionError(path)


def asked() -> bool:
    """Ask to stop, as a signal does that comes before the first step."""
    return True


def run_to_the_end(words: list[object], folder: Path) -> str:
    process = start(words, folder, launcher=TORCHRUN)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


@pytest.mark.parametrize("target", ["rank 1", "rank 0", "torchrun", "both"])
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the ranks in /proc")
def test_all_processes_stop_after_the_same_step(
    text_files: list[Path], tmp_path: Path, target: str
) -> None:
    words = [*LONG, *text_files, "--out", "run"]
    process = start(words, tmp_path, launcher=TORCHRUN)
    wait_for_line(process, "step 10: validation")
    found = ranks(process.pid)
    assert found.keys() == {"0", "1"}
    for pid in {
        "rank 1": [found["1"]],
        "rank 0": [found["0"]],
        "torchrun": [process.pid],
        "both": [found["1"], found["0"]],
    }[target]:
        os.kill(pid, signal.SIGTERM)
    status, err = end_of(process)
    assert status != 0
    said = re.findall(r"sdm-train: stopped at step (\d+) of 100000; continue with --resume", err)
    assert len(said) == 1, err
    assert "Connection" not in err
    assert names(tmp_path / "run") == {"checkpoint.pt"}
    assert load_checkpoint(tmp_path / "run/checkpoint.pt").step == int(said[0])


@pytest.mark.slow
def test_what_was_stopped_goes_on_with_the_same_bits(
    text_files: list[Path], tmp_path: Path
) -> None:
    words = [*TEXT_SIZES, "--steps", 60, "--eval-every", 5, *text_files, "--out"]
    run_to_the_end([*words, "whole"], tmp_path)
    process = start([*words, "parts"], tmp_path, launcher=TORCHRUN)
    wait_for_line(process, "step 5: validation")
    os.kill(ranks(process.pid)["1"], signal.SIGTERM)
    status, err = end_of(process)
    assert status != 0
    assert 5 <= load_checkpoint(tmp_path / "parts/checkpoint.pt").step < 60, err
    run_to_the_end(["--resume", "--out", "parts", "--device", "cpu"], tmp_path)
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")


def test_a_process_that_cannot_write_ends_them_all(text_files: list[Path], tmp_path: Path) -> None:
    words = [*LONG, *text_files, "--out", "run", "--checkpoint-every", 20]
    process = start(words, tmp_path, launcher=TORCHRUN)
    wait_for_line(process, "step 10: validation")
    stand_in_the_way(tmp_path / "run/checkpoint.partial")
    status, err = end_of(process)
    assert status != 0
    assert err.count("sdm-train: error: run/checkpoint.partial: Is a directory") == 1, err
    assert "ElsewhereError" not in err


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_process_stops_between_two_steps(
    text_files: list[Path], tmp_path: Path, kind: int
) -> None:
    process = start([*LONG, *text_files, "--out", "run"], tmp_path)
    wait_for_line(process, "step 10: validation")
    process.send_signal(kind)
    process.send_signal(kind)  # as `timeout` does
    status, err = end_of(process)
    assert status == 130
    (step,) = re.findall(r"^sdm-train: stopped at step (\d+) of 100000", err)
    assert load_checkpoint(tmp_path / "run/checkpoint.pt").step == int(step) >= 10


@pytest.mark.parametrize(
    "words", [TEXT_SIZES, ["--task", "recall", *SIZES]], ids=["text", "recall"]
)
def test_a_signal_before_the_first_step_ends_at_once(
    sdm_train, text_files: list[Path], words: list[object], monkeypatch
) -> None:
    def interrupted(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)

    monkeypatch.setattr(cli, "settle_config", interrupted)
    began = time.monotonic()
    done = sdm_train(*words)
    assert (done.status, done.err) == (130, "sdm-train: stopped before a step was taken\n")
    assert time.monotonic() - began < 20
    assert not Path("runs").exists()


def test_a_signal_in_the_last_validation_ends_at_once(
    sdm_train, text_files: list[Path], monkeypatch
) -> None:
    def interrupted(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)

    with monkeypatch.context() as patched:
        patched.setattr(run_text, "validate", interrupted)
        done = sdm_train(*TEXT_SIZES, *text_files)
    assert done.status == 130
    assert done.err == "sdm-train: stopped at step 4 of 4; continue with --resume\n"
    assert "checkpoint.pt" in names(Path("runs/text"))
    assert sdm_train("--resume", "--device", "cpu").status == 0
    assert "report.json" in names(Path("runs/text"))


def test_a_signal_in_the_last_step_is_not_forgotten(
    sdm_train, text_files: list[Path], monkeypatch
) -> None:
    record = Trainer._record

    def interrupted(self, *given) -> None:
        record(self, *given)
        if self.step == self.config.steps:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Trainer, "_record", interrupted)
    done = sdm_train(*TEXT_SIZES, *text_files)
    assert done.status == 130
    assert load_checkpoint(Path("runs/text/checkpoint.pt")).finished
    assert "report.json" not in names(Path("runs/text"))


def test_a_run_stopped_before_its_first_step_can_go_on(
    sdm_train, text_files: list[Path], monkeypatch
) -> None:
    run = Trainer.run
    assert sdm_train(*TEXT_SIZES, *text_files, "--out", "whole").status == 0
    with monkeypatch.context() as patched:
        patched.setattr(
            Trainer, "run", lambda self, until, shown, _: run(self, until, shown, asked)
        )
        done = sdm_train(*TEXT_SIZES, *text_files)
    assert done.err == "sdm-train: stopped at step 0 of 4; continue with --resume\n"
    assert sdm_train("--resume", "--device", "cpu").status == 0
    assert losses(Path("runs/text")) == losses(Path("whole"))
