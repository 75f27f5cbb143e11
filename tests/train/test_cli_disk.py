"""Files that cannot be written: one line that names the file, status 2, and nothing left of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from disks import file_limit

from sdm_runtime.train.checkpoints.checkpoint import load_checkpoint
from sdm_runtime.train.trainer.loop import Trainer

from .commands import SIZES, TEXT_SIZES, losses, names


def full_for(name: str) -> Callable[..., None]:
    """Return an os.replace for which the disk is full where the file ``name`` is to be."""
    replace = os.replace

    def run(source: str, target: str) -> None:
        if Path(target).name == name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    return run


def test_a_checkpoint_on_a_full_disk(sdm_train, text_files: list[Path]) -> None:
    with file_limit(20_000):
        done = sdm_train(*TEXT_SIZES, *text_files)
    assert done.status == 2
    assert done.err == "sdm-train: error: runs/text/checkpoint.pt: File too large\n"
    assert names(Path("runs/text")) == set()


def test_the_checkpoint_before_it_stays(sdm_train, text_files: list[Path]) -> None:
    assert sdm_train(*TEXT_SIZES, *text_files, "--out", "whole").status == 0
    assert sdm_train(*TEXT_SIZES, *text_files, "--stop-after", 2).status == 130
    with file_limit(20_000):
        done = sdm_train("--resume", "--device", "cpu")
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert names(Path("runs/text")) == {"checkpoint.pt"}
    assert load_checkpoint(Path("runs/text/checkpoint.pt")).step == 2
    # With room again the run goes on.
    assert sdm_train("--resume", "--device", "cpu").status == 0
    assert losses(Path("runs/text")) == losses(Path("whole"))


@pytest.mark.parametrize("task", ["text", "recall"])
def test_every_file_of_a_run(sdm_train, text_files: list[Path], task: str, monkeypatch) -> None:
    words = ["--task", "recall", *SIZES, "--pairs", 3, "--gap", 8, "--keys", 6, "--values", 4]
    if task == "text":
        words = [*TEXT_SIZES, *text_files]
    out = Path("runs", task)
    assert sdm_train(*words).status == 0
    made = names(out)
    kept = {name for name in made if name.endswith(".pt")}
    for name in sorted(made - kept):
        with monkeypatch.context() as patched:
            patched.setattr(os, "replace", full_for(name))
            done = sdm_train(*words, "--fresh")
        want = f"sdm-train: error: {out / name}: No space left on device\n"
        assert (done.status, done.err) == (2, want)
        assert names(out) < made
        assert {sorted(kept)[0]} <= names(out)  # the checkpoint of what was trained before it
        assert name not in names(out)
        assert not any(left.endswith(".partial") for left in names(out))


@pytest.mark.parametrize("name", ["checkpoint.partial", "checkpoint.pt", "report.json"])
def test_a_folder_in_the_way_is_said_before_the_first_step(
    sdm_train, text_files: list[Path], name: str, monkeypatch
) -> None:
    assert sdm_train(*TEXT_SIZES, *text_files, "--stop-after", 2).status == 130
    way = Path("runs/text", name)
    way.unlink(missing_ok=True)
    way.mkdir()
    monkeypatch.setattr(Trainer, "run", lambda *_: pytest.fail("a step was run"))
    for word in ("--fresh", "--resume") if name != "checkpoint.pt" else ("--fresh",):
        done = sdm_train(*TEXT_SIZES, *text_files, word)
        assert (done.status, done.err.count("\n")) == (2, 1)
        assert f"out: expected room for the file {way}, got a folder of that name" in done.err


def test_what_a_resumed_run_could_not_replace_is_said_before_its_first_step(
    sdm_train, text_files: list[Path], monkeypatch
) -> None:
    assert sdm_train(*TEXT_SIZES, *text_files, "--stop-after", 2).status == 130
    report, run = Path("runs/text/report.json"), Trainer.run

    def refused() -> str:
        done = sdm_train("--resume", "--device", "cpu")
        assert (done.status, done.err.count("\n")) == (2, 1)
        report.unlink()
        return done.err.removeprefix("sdm-train: error: out: expected ").removesuffix("\n")

    monkeypatch.setattr(Trainer, "run", lambda *_: pytest.fail("a step was run"))
    os.mkfifo(report)  # nobody reads it: the run would end, and wait
    assert refused() == f"room for the file {report}, got a pipe of that name"
    report.symlink_to(".")
    assert refused() == f"room for the file {report}, got a folder of that name"
    gone = Path("gone").resolve()
    report.symlink_to(gone / "report.json")
    assert refused() == f"a folder that can be written, got {gone} (No such file or directory)"
    report.touch()
    with monkeypatch.context() as patched:  # as for a user without the right: root has every right
        patched.setattr(os, "access", lambda path, _: Path(path) != report)
        assert refused() == f"files that can be written, got {report}"
    # The control: a link to where a file can be, which is followed.
    gone.mkdir()
    report.symlink_to(gone / "report.json")
    monkeypatch.setattr(Trainer, "run", run)
    assert sdm_train("--resume", "--device", "cpu").status == 0
    assert report.is_symlink()
    assert losses(Path("runs/text")) == losses(gone)
