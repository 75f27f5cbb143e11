"""Sizes that no machine has, data that is too little, and runs that become longer."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch

from sdm_runtime.train.checkpoints.checkpoint import load_checkpoint
from sdm_runtime.train.run import run_text
from sdm_runtime.train.trainer.loop import Trainer

from .commands import SIZES, TEXT_SIZES, losses, names


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["--slots", 10**12], "slots"),
        (["--dim", 10**9], "dim"),
        (["--batch-size", 10**12], "batch_size"),
        (["--blocks", 10**9], "blocks"),
        (["--kernel", 10**9], "kernel"),
        (["--slots", 10**400], "slots"),
        (["--task", "recall", "--gap", 10**12], "gap"),
    ],
    ids=lambda value: f"{value[-2]}" if isinstance(value, list) else "",
)
def test_sizes_beyond_memory_are_refused_at_once(
    sdm_train, text_files: list[Path], words: list[object], name: str
) -> None:
    files = [] if "recall" in words else text_files
    sizes = [*SIZES, "--keys", 16] if "recall" in words else TEXT_SIZES
    began = time.monotonic()
    done = sdm_train(*sizes, *words, *files)
    assert time.monotonic() - began < 10
    assert (done.status, done.err.count("\n")) == (2, 1)
    start = f"sdm-train: error: {name}: expected a run that fits into memory, got 1000"
    assert done.err.startswith(start)
    assert done.err.endswith("GiB are free\n")
    assert not Path("runs").exists()


def test_an_allocation_that_fails_gets_one_line(
    sdm_train, text_files: list[Path], monkeypatch
) -> None:
    monkeypatch.setattr(run_text, "new_trainer", lambda *_: torch.empty(2**50))
    done = sdm_train(*TEXT_SIZES, *text_files)
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert done.err.startswith("sdm-train: error: out of memory (")
    # The control: another error of the library is one of ours.
    monkeypatch.setattr(run_text, "new_trainer", lambda *_: torch.ones(2) @ torch.ones(3))
    with pytest.raises(RuntimeError, match="inconsistent tensor size"):
        sdm_train(*TEXT_SIZES, *text_files)


def test_threads_that_no_machine_has(sdm_train) -> None:
    for threads in (0, 10**5, 10**12):
        done = sdm_train("--threads", threads)
        assert done.status == 2
        assert "Invalid value for '--threads'" in done.err


def test_sequences_are_no_longer_than_the_longest_file(sdm_train, text_files: list[Path]) -> None:
    one = max(text_files, key=lambda path: path.stat().st_size)
    done = sdm_train(*TEXT_SIZES, one, "--length", 10**7)
    assert done.status == 0, done.err
    report = json.loads(Path("runs/text/report.json").read_text())
    longest = report["data"]["train_bytes"]
    note = "note: no training file is as long as --length 10000000: sequences have the"
    assert f"{note} {longest} bytes of the longest" in done.out
    assert f"4 steps of 2 x {longest} bytes" in done.out
    assert report["history"]["tokens"] == 4 * 2 * longest
    shorter = sdm_train(*TEXT_SIZES, one, "--length", longest, "--out", "same")
    assert "note: no training file is as long" not in shorter.out
    assert losses(Path("same")) == losses(Path("runs/text"))


def test_little_to_validate_on_is_said(sdm_train) -> None:
    Path("a.txt").write_text("some text, " * 500)
    Path("b.txt").write_text("x")
    note = "note: few bytes to validate on ({}), bits per byte of them say little"
    done = sdm_train(*TEXT_SIZES, "a.txt", "b.txt")
    assert done.status == 0, done.err
    (given,) = [n for n in (1, 50) if note.format(n) in done.out]
    report = json.loads(Path("runs/text/report.json").read_text())
    assert report["data"]["evaluated_bytes"] == given
    enough = [*TEXT_SIZES, "--eval-length", 5000, "--validation-fraction", 0.5, "--fresh", "a.txt"]
    assert "few bytes to validate on" not in sdm_train(*enough).out


def test_a_validation_of_one_byte_runs_to_the_end(sdm_train) -> None:
    Path("a.txt").write_text("some text, " * 5)
    done = sdm_train(*TEXT_SIZES, "a.txt", "--validation-fraction", 0.001)
    assert done.status == 0, done.err
    assert "note: few bytes to validate on (1)" in done.out
    assert "report.png" in names(Path("runs/text"))


def test_files_that_are_one_are_named(sdm_train, text_files: list[Path]) -> None:
    first = text_files[5]
    copy, link = Path("copy.txt"), Path("link.txt")
    shutil.copy(first, copy)
    link.symlink_to(first)
    done = sdm_train(*TEXT_SIZES, *text_files, first, copy, link)
    assert done.status == 0, done.err
    for line in (
        f"note: {first} is given twice, and is read once",
        f"note: copy.txt has the bytes of {first}, and is read once",
        f"note: link.txt is the same file as {first}, and is read once",
    ):
        assert done.out.count(line) == 1
    alone = sdm_train(*TEXT_SIZES, *text_files, "--out", "alone")
    assert "read once" not in alone.out
    assert losses(Path("alone")) == losses(Path("runs/text"))


def test_texts_beyond_memory_are_refused_unread(sdm_train) -> None:
    with open("sparse.txt", "wb") as file:
        file.truncate(2**43)
    done = sdm_train(*TEXT_SIZES, "sparse.txt")
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert "sparse.txt: 8,796,093,022,208 bytes; all texts together need 16,384 GiB" in done.err


def test_a_finished_run_is_extended(sdm_train, text_files: list[Path]) -> None:
    assert sdm_train(*TEXT_SIZES, *text_files).status == 0
    before = losses(Path("runs/text"))
    fewer = sdm_train("--resume", "--steps", 3, "--device", "cpu")
    assert fewer.status == 2
    assert "steps: saved 4, given 3" in fewer.err
    more = sdm_train("--resume", "--steps", 6, "--device", "cpu")
    assert more.status == 0, more.err
    after = losses(Path("runs/text"))
    assert (len(after), after[:4]) == (6, before)
    checkpoint = load_checkpoint(Path("runs/text/checkpoint.pt"))
    assert (checkpoint.step, checkpoint.config.steps) == (6, 6)
    report = json.loads(Path("runs/text/report.json").read_text())
    assert [step for step, _ in report["history"]["evaluations"]] == [2, 4, 6]
    other = sdm_train("--resume", "--steps", 8, "--dim", 32, "--device", "cpu")
    assert other.err.endswith("was written by another config: model.dim: saved 16, given 32\n")


def test_an_unfinished_run_is_not(sdm_train, text_files: list[Path]) -> None:
    assert sdm_train(*TEXT_SIZES, *text_files, "--stop-after", 2).status == 130
    done = sdm_train("--resume", "--steps", 6, "--device", "cpu")
    assert done.status == 2
    assert done.err.endswith("steps: saved 4, given 6 (more steps once it has done its 4)\n")


def test_both_models_of_a_recall_run_are_extended(sdm_train) -> None:
    words = ["--task", "recall", *SIZES, "--pairs", 3, "--gap", 8, "--keys", 6, "--values", 4]
    assert sdm_train(*words).status == 0
    more = ["--task", "recall", "--resume", "--steps", 6, "--device", "cpu"]
    # Stopped between the two, it goes on with the steps that it was extended to.
    assert sdm_train(*more, "--stop-after", 5).status == 130
    assert sdm_train(*more).status == 0
    report = json.loads(Path("runs/recall/report.json").read_text())
    assert {len(part["losses"]) for part in report["history"].values()} == {6}


def test_a_recall_run_is_finished_with_its_second_model(sdm_train, monkeypatch) -> None:
    words = ["--task", "recall", *SIZES, "--pairs", 3, "--gap", 8, "--keys", 6, "--values", 4]
    resume = ["--task", "recall", "--resume", "--device", "cpu"]
    record = Trainer._record

    def interrupted(self, *given) -> None:
        record(self, *given)
        if self.step == 2 and not self.config.model.memory_blocks:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_record", interrupted)
        assert sdm_train(*words).status == 130
    memory, control = (Path(f"runs/recall/{n}_memory.pt") for n in ("with", "without"))
    assert (load_checkpoint(memory).step, load_checkpoint(control).step) == (4, 2)
    # Neither extended nor overwritten.
    more = sdm_train(*resume, "--steps", 6)
    assert more.err.endswith("steps: saved 4, given 6 (more steps once it has done its 4)\n")
    assert load_checkpoint(memory).step == 4
    again = sdm_train(*words)
    assert "runs/recall holds a run at step 2 of 4: continue it with --resume" in again.err
    control.unlink()
    again = sdm_train(*words)
    assert "runs/recall holds a run between its two models: continue it with" in again.err
    assert sdm_train(*resume).status == 0
    assert sdm_train(*resume, "--steps", 6).status == 0
    assert load_checkpoint(control).step == 6
