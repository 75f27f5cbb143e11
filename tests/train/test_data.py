"""Reading and splitting text files."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path

import pytest

from sdm_runtime.train.data.corpus import DataError, load_corpus, standard_library_files


def contents(documents) -> set[bytes]:
    return {bytes(documents.document(i).tolist()) for i in range(len(documents))}


def test_every_file_stands_whole_on_one_side(text_files: list[Path]) -> None:
    corpus = load_corpus(text_files, 0.25)
    train, validation = contents(corpus.train), contents(corpus.validation)
    assert validation
    assert not train & validation
    assert train | validation == {path.read_bytes() for path in text_files}


def test_split_depends_on_the_bytes_alone(text_files: list[Path], tmp_path: Path) -> None:
    first = load_corpus(text_files, 0.25)
    moved = [Path(shutil.copy(p, tmp_path / f"moved{i}")) for i, p in enumerate(text_files)]
    again = load_corpus(moved[::-1], 0.25)
    assert contents(again.validation) == contents(first.validation)
    without_one = load_corpus(text_files[1:], 0.25)
    rest = {path.read_bytes() for path in text_files[1:]}
    assert contents(without_one.validation) == contents(first.validation) & rest


def test_order_follows_the_command_line(text_files: list[Path]) -> None:
    corpus = load_corpus(text_files, 0.25)
    on_train = [str(p) for p in text_files if str(p) in corpus.train.names]
    assert list(corpus.train.names) == on_train
    assert load_corpus(text_files, 0.25).train.digest() == corpus.train.digest()
    assert load_corpus(text_files[::-1], 0.25).train.digest() != corpus.train.digest()


def test_copies_are_read_once(text_files: list[Path], tmp_path: Path) -> None:
    copy = Path(shutil.copy(text_files[0], tmp_path / "copy"))
    corpus = load_corpus([*text_files, copy], 0.25)
    assert len(corpus.train) + len(corpus.validation) == len(text_files)
    assert corpus.copies == ((str(copy), str(text_files[0])),)
    assert load_corpus(text_files, 0.25).copies == ()
    twice = load_corpus([copy, copy], 0.25)  # one file, which is cut
    assert twice.copies == ((str(copy), str(copy)),)
    assert contents(twice.train) == {copy.read_bytes()[: -len(twice.validation.data)]}


@pytest.mark.parametrize("fraction", [1e-9, 1 - 1e-9])
def test_no_side_is_empty(text_files: list[Path], fraction: float) -> None:
    corpus = load_corpus(text_files[:2], fraction)
    assert (len(corpus.train), len(corpus.validation)) == (1, 1)


def test_single_file_is_cut(text_files: list[Path]) -> None:
    content = text_files[-1].read_bytes()
    corpus = load_corpus(text_files[-1:], 0.25)
    tail = round(len(content) * 0.25)
    assert contents(corpus.train) == {content[:-tail]}
    assert contents(corpus.validation) == {content[-tail:]}


def test_truncated_and_taken(text_files: list[Path]) -> None:
    documents = load_corpus(text_files, 0.25).train
    short = documents.truncated(10)
    assert short.lengths().tolist() == [min(10, n) for n in documents.lengths().tolist()]
    assert short.document(1).tolist() == documents.document(1)[:10].tolist()
    assert documents.take([2, 0]).document(1).tolist() == documents.document(0).tolist()


def test_standard_library_is_this_pythons() -> None:
    files = standard_library_files()
    root = Path(sysconfig.get_path("stdlib"))
    assert root / "json" / "decoder.py" in files
    assert files == sorted(files)
    parts = {part for path in files for part in path.relative_to(root).parts}
    assert not parts & {"site-packages", "dist-packages", "test", "tests"}


def test_unusable_files_are_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.touch()
    good = tmp_path / "good.txt"
    good.write_text("text")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for bad, reason in (
        (tmp_path / "missing.txt", "no such file"),
        (empty, "empty"),
        (tmp_path, "a folder"),
        (good / "below", "cannot be read"),
        (Path("/dev/zero"), "not a regular file"),
        (pipe, "not a regular file"),
    ):
        with pytest.raises(DataError, match=reason) as caught:
            load_corpus([good, bad])
        assert str(bad) in str(caught.value)
    good.write_text("t")
    with pytest.raises(DataError, match="too few"):
        load_corpus([good])
    with pytest.raises(DataError, match="no text file"):
        load_corpus([])
    with pytest.raises(ValueError, match="validation_fraction"):
        load_corpus([good], 1.0)
