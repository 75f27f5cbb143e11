"""Standard output that cannot be written never ends a run."""

from __future__ import annotations

import io
import os
import subprocess
from pathlib import Path

import pytest

from sdm_runtime.train.checkpoints.checkpoint import load_checkpoint
from sdm_runtime.train.run.output import Output

from .commands import TEXT_SIZES, names, start

WORDS = [*TEXT_SIZES, "--steps", 12, "--eval-every", 1, "--out", "run"]
FILES = {"checkpoint.pt", "report.json", "report.png", "last_backward.chain", "last_backward.html"}
NOTE = "sdm-train: note: standard output cannot be written ({}); the run goes on\n"


def expect_whole(folder: Path) -> None:
    assert names(folder / "run") == FILES
    assert load_checkpoint(folder / "run/checkpoint.pt").step == 12


def test_a_reader_that_goes_away(text_files: list[Path], tmp_path: Path) -> None:
    process = start([*WORDS, *text_files], tmp_path)
    head = subprocess.Popen(["head", "-1"], stdin=process.stdout, stdout=subprocess.PIPE, text=True)
    process.stdout.close()
    assert head.communicate(timeout=60)[0].startswith("train ")
    err = process.stderr.read()
    assert process.wait(timeout=60) == 0
    assert err == NOTE.format("Broken pipe")
    expect_whole(tmp_path)


def test_a_full_disk_ends_no_run(text_files: list[Path], tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        process = start([*WORDS, *text_files], tmp_path, stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert err == NOTE.format("No space left on device")
    expect_whole(tmp_path)


def test_nowhere_to_say_anything(text_files: list[Path], tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        process = start([*WORDS, *text_files], tmp_path, stdout=full, stderr=full)
        assert process.wait(timeout=60) == 0
        expect_whole(tmp_path)
        wrong = start(["missing.txt", "--device", "cpu"], tmp_path, stdout=full, stderr=full)
        assert wrong.wait(timeout=60) == 2


@pytest.mark.parametrize("closed", [(1,), (1, 2), (0, 1, 2)], ids=str)
def test_closed_streams_end_no_run(
    text_files: list[Path], tmp_path: Path, closed: tuple[int, ...]
) -> None:
    def close() -> None:
        for number in closed:
            os.close(number)

    process = start([*WORDS, *text_files], tmp_path, stdout=None, stderr=None, preexec_fn=close)
    assert process.wait(timeout=60) == 0
    expect_whole(tmp_path)


def test_a_stream_of_few_characters(text_files: list[Path], tmp_path: Path) -> None:
    words = [*WORDS[:-1], "läuft\udcff", *text_files]  # the last one is a byte that is no UTF-8
    process = start(words, tmp_path, env={"PYTHONIOENCODING": "ascii"})
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert "l\\xe4uft\\udcff" in out
    assert names(tmp_path / "läuft\udcff") == FILES


@pytest.mark.parametrize("words", [["--help"], ["--version"]], ids=str)
def test_help_that_cannot_be_written(tmp_path: Path, words: list[object]) -> None:
    with open("/dev/full", "w") as full:
        process = start(words, tmp_path, stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.count("\n") == 1
    assert "No space left on device" in err


class Full(io.StringIO):
    """A stream on a disk that has room again later."""

    full = True

    def flush(self) -> None:
        if self.full:
            raise OSError(28, "No space left on device")


def test_what_comes_after_a_full_disk_is_written(capfd) -> None:
    stream = Full()
    output = Output(stream)
    for text in ("one ", "two "):
        output.write(text)
        output.flush()
    stream.full = False
    output.write("three")
    output.flush()
    assert stream.getvalue().endswith("three")
    assert capfd.readouterr().err == NOTE.format("No space left on device")
