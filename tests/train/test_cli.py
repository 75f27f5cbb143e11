"""The ``sdm-train`` command from end to end, small."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from sdm_runtime import StepChain
from sdm_runtime.train.checkpoints.checkpoint import load_checkpoint
from sdm_runtime.train.run import run_text
from sdm_runtime.train.tasks.evaluate import Validation, validate
from sdm_runtime.train.trainer.loop import Trainer

from .commands import SIZES, TEXT_SIZES, losses


def test_a_run_leaves_its_files(sdm_train, text_files: list[Path]) -> None:
    done = sdm_train(*TEXT_SIZES, *text_files)
    assert done.status == 0, done.err
    out = Path("runs/text")
    assert {p.name for p in out.iterdir()} == {
        "checkpoint.pt",
        "last_backward.chain",
        "last_backward.html",
        "report.json",
        "report.png",
    }
    report = json.loads((out / "report.json").read_text())
    assert len(report["history"]["losses"]) == 4
    assert [step for step, _ in report["history"]["evaluations"]] == [2, 4]
    assert report["data"]["train_files"] + report["data"]["validation_files"] == len(text_files)
    assert report["validation"]["num_bytes"] == report["data"]["evaluated_bytes"]
    assert report["dispatch"]["route"] in ("chain", "loop")
    assert StepChain.load(out / "last_backward.chain").steps == 3
    for shown in (
        f"unigram {report['entropies']['unigram']:.3f}",
        f"bigram {report['entropies']['bigram']:.3f}",
        f"validation {report['validation']['bits_per_byte']:.3f} bits per byte",
    ):
        assert shown in done.out


def test_the_last_validation_is_said_before_it_begins(
    sdm_train, text_files: list[Path], monkeypatch
) -> None:
    def announced(*given: Any) -> Validation:
        print("<validate>")
        return validate(*given)

    monkeypatch.setattr(run_text, "validate", announced)
    out = sdm_train(*TEXT_SIZES, *text_files).out
    data = json.loads(Path("runs/text/report.json").read_text())["data"]
    said = f"validating on {data['evaluated_bytes']:,} bytes of {data['validation_files']:,} files"
    places = [out.index(part) for part in ("step 4/4", said, "<validate>", "bits per byte over")]
    assert places == sorted(places)


def test_resumed_run_equals_an_uninterrupted_one(sdm_train, text_files: list[Path]) -> None:
    assert sdm_train(*TEXT_SIZES, *text_files, "--out", "whole").status == 0
    stopped = sdm_train(*TEXT_SIZES, *text_files, "--out", "parts", "--stop-after", 3)
    assert stopped.status == 130
    assert "stopped at step 3 of 4; continue with --resume" in stopped.err
    undecided = sdm_train(*TEXT_SIZES, *text_files, "--out", "parts")
    assert undecided.status == 2
    assert "parts holds a run at step 3 of 4: continue it with --resume" in undecided.err
    # The files and settings come from the checkpoint.
    assert sdm_train("--out", "parts", "--resume", "--device", "cpu").status == 0
    assert losses(Path("parts")) == losses(Path("whole"))
    whole, parts = (load_checkpoint(Path(f, "checkpoint.pt")).content for f in ("whole", "parts"))
    for name, value in whole["model"].items():
        assert torch.equal(value, parts["model"][name]), name
    assert sdm_train(*TEXT_SIZES, *text_files, "--out", "other", "--seed", 1).status == 0
    assert losses(Path("other")) != losses(Path("whole"))


def test_resume_refuses_what_is_not_the_same_run(sdm_train, text_files: list[Path]) -> None:
    assert sdm_train(*TEXT_SIZES, *text_files, "--stop-after", 1).status == 130
    other = sdm_train("--resume", "--dim", 32, "--device", "cpu")
    assert other.status == 2
    assert "was written by another config: model.dim: saved 16, given 32" in other.err
    data = sdm_train("--resume", *text_files[1:], "--device", "cpu")
    assert data.status == 2
    assert "the text files are not those it was trained on" in data.err
    text_files[0].unlink()
    gone = sdm_train("--resume", "--device", "cpu")
    assert gone.status == 2
    assert f"{text_files[0]}: no such file" in gone.err
    assert load_checkpoint(Path("runs/text/checkpoint.pt")).step == 1


def test_signal_stops_after_the_step(sdm_train, text_files: list[Path], monkeypatch) -> None:
    before = signal.getsignal(signal.SIGINT)  # ignored, where this runs in the background
    take_step = Trainer._record

    def signal_at_2(self, loss, began, progress):
        if self.step == 1:
            os.kill(os.getpid(), signal.SIGINT)
        take_step(self, loss, began, progress)

    monkeypatch.setattr(Trainer, "_record", signal_at_2)
    stopped = sdm_train(*TEXT_SIZES, *text_files)
    assert stopped.status == 130
    assert "stopped at step 2 of 4" in stopped.err
    assert load_checkpoint(Path("runs/text/checkpoint.pt")).step == 2
    assert signal.getsignal(signal.SIGINT) is before


def test_fresh_starts_over(sdm_train, text_files: list[Path]) -> None:
    assert sdm_train(*TEXT_SIZES, *text_files).status == 0
    first = losses(Path("runs/text"))
    undecided = sdm_train(*TEXT_SIZES, *text_files, "--seed", 1)
    assert (undecided.status, undecided.err) == (
        2,
        "sdm-train: error: runs/text holds a run at step 4 of 4: continue it with --resume, "
        "start over with --fresh, or give another --out\n",
    )
    assert losses(Path("runs/text")) == first
    other = ["--fresh", "--stop-after", 2, "--seed", 1]
    assert sdm_train(*TEXT_SIZES, *text_files, *other).status == 130
    assert not Path("runs/text/report.json").exists()
    assert sdm_train(*TEXT_SIZES, *text_files, "--fresh").status == 0
    assert losses(Path("runs/text")) == first


def test_without_memory_there_is_no_chain(sdm_train, text_files: list[Path]) -> None:
    done = sdm_train(*TEXT_SIZES, *text_files, "--memory-blocks", "none")
    assert done.status == 0, done.err
    assert not Path("runs/text/last_backward.chain").exists()
    assert "last_backward.chain" not in done.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.txt"], "missing.txt: no such file"),
        (["--task", "nothing"], "task: expected text or recall, got nothing"),
        (["--dim", "0"], "dim: expected at least 1, got 0"),
        (["--slots", "1000"], "slots: expected a square number, got 1000"),
        (["--memory-blocks", "a"], "memory_blocks: expected numbers like 0,2 or none, got a"),
        (["--device", "tpu"], "device: expected auto, cpu, cuda or cuda:N, got tpu"),
        (["--resume"], "runs/text/checkpoint.pt: no such checkpoint"),
        (["--resume", "--fresh"], "fresh: expected without --resume, got both"),
        (["--capture", "--device", "cpu"], "capture: expected one process on a CUDA device"),
        (["--task", "recall", "a.txt"], "files: expected none for recall, got 1"),
        (["--task", "recall", "--gap", "1"], "gap: expected at least the local window"),
        (
            ["--task", "recall", "--length", "9"],
            "length: expected only with --task text, got --task recall",
        ),
        (["--keys", "9"], "keys: expected only with --task recall, got --task text"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_get_one_line(sdm_train, words: list[str], message: str) -> None:
    done = sdm_train(*words)
    assert done.status == 2
    assert done.err.startswith("sdm-train: error: ")
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not Path("runs").exists()


def test_an_unreadable_checkpoint_ends_the_command(sdm_train, text_files: list[Path]) -> None:
    Path("runs/text").mkdir(parents=True)
    Path("runs/text/checkpoint.pt").write_text("not a checkpoint")
    for words in ([], ["--resume"]):
        done = sdm_train(*TEXT_SIZES, *text_files, *words)
        assert (done.status, done.err.count("\n")) == (2, 1)
        assert "runs/text/checkpoint.pt: not a readable checkpoint" in done.err
    assert sdm_train(*TEXT_SIZES, *text_files, "--fresh").status == 0


def test_folder_that_cannot_be_written(sdm_train, text_files: list[Path]) -> None:
    Path("taken").write_text("a file")
    done = sdm_train(*TEXT_SIZES, *text_files, "--out", "taken")
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert "taken" in done.err


def test_folder_that_cannot_be_made_is_said_before_the_first_step(
    sdm_train, text_files: list[Path], monkeypatch
) -> None:
    monkeypatch.setattr(Trainer, "run", lambda *_: pytest.fail("a step was run"))
    Path("nowhere").symlink_to("missing/folder")
    done = sdm_train(*TEXT_SIZES, *text_files, "--out", "nowhere")
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert "out: expected a folder that can be written, got nowhere (" in done.err


def test_every_option_is_documented(sdm_train) -> None:
    shown = sdm_train("--help").out
    assert shown.count("--") > 30
    assert "runs/TASK" in shown
    assert "Python's standard library" in shown
    task = " ".join(shown.split("--task", 1)[1].split("--out", 1)[0].replace("│", " ").split())
    assert "recall: key-value recall, also to --resume one" in task


def test_recall_trains_both_models(sdm_train) -> None:
    words = ["--task", "recall", *SIZES, "--pairs", 3, "--gap", 8, "--keys", 6, "--values", 4]
    stopped = sdm_train(*words, "--stop-after", 2)
    assert "stopped at step 2 of 4" in stopped.err
    done = sdm_train("--task", "recall", "--resume", "--device", "cpu")
    assert done.status == 0, done.err
    again = sdm_train(*words)
    assert again.status == 2
    assert "runs/recall holds a run at step 4 of 4: continue it with --resume" in again.err
    assert "bits/symbol" in done.out
    report = json.loads(Path("runs/recall/report.json").read_text())
    assert set(report["accuracy"]) == {"with_memory", "without_memory"}
    assert {p.name for p in Path("runs/recall").iterdir()} == {
        "last_backward.chain",
        "last_backward.html",
        "report.json",
        "report.png",
        "with_memory.pt",
        "without_memory.pt",
    }
    for name, history in report["history"].items():
        assert len(history["losses"]) == 4, name
    assert "% with memory" in done.out
    assert sdm_train(*words, "--out", "whole").status == 0
    whole = json.loads(Path("whole/report.json").read_text())
    for name in ("with_memory", "without_memory"):
        assert whole["history"][name]["losses"] == report["history"][name]["losses"]
