"""A whole run of the text task: data, entropies, training, validation, files."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sdm_runtime.dispatch import last_dispatch
from sdm_runtime.train.checkpoints.checkpoint import Checkpoint, CheckpointError
from sdm_runtime.train.config import RunConfig
from sdm_runtime.train.data.corpus import Corpus, load_corpus, standard_library_files
from sdm_runtime.train.report.plots import plot_text
from sdm_runtime.train.report.report import (
    CHAIN_FILES,
    corpus_digest,
    describe_corpus,
    describe_history,
    describe_run,
    device_name,
    save_last_chain,
    write_json,
)
from sdm_runtime.train.run.session import (
    CHECKPOINTS,
    Session,
    agree_on_room,
    alone,
    claim,
    new_trainer,
    train_model,
)
from sdm_runtime.train.tasks.entropy import NgramEntropies, NgramModel, ngram_entropies
from sdm_runtime.train.tasks.evaluate import Validation, validate
from sdm_runtime.train.tasks.text import TextTask
from sdm_runtime.train.trainer.loop import Trainer
from sdm_runtime.train.trainer.model import ByteModel, count_parameters

CHECKPOINT = CHECKPOINTS["text"]
# Bits per byte of random bytes vary by about 2.5 / sqrt(n): at 1000 by 0.08.
_FEW_BYTES = 1000
_FILES = ("checkpoint.pt", "report.json", "report.png", *CHAIN_FILES)


def run_text(
    session: Session, config: RunConfig, checkpoint: Checkpoint | None, files: Sequence[Path]
) -> None:
    """Train on text files and write ``report.json``, ``report.png`` and the last chain.

    Args:
        session: where and how.
        config: checked.
        checkpoint: what to continue, or None.
        files: text files; none means a resumed run's, or else the standard library's.

    Raises:
        DataError: a file cannot be used.
        CheckpointError: the files are not those of the resumed run.
        Stopped: the session ended early.
        TrainingError: the loss is not finite.
    """
    corpus, names = _load(files, checkpoint, config)
    longest, longest_validation = (
        int(side.lengths().max()) for side in (corpus.train, corpus.validation)
    )
    agree_on_room(session, config, longest, longest_validation)
    claim(session, _FILES, keep=checkpoint is not None)
    evaluated = corpus.validation.truncated(config.eval_length)
    entropies = ngram_entropies(corpus.train, evaluated)
    _describe_data(session, corpus, evaluated.num_bytes, entropies)
    if files:
        _note_copies(session, corpus)
    if evaluated.num_bytes < _FEW_BYTES:
        session.say(
            f"note: few bytes to validate on ({evaluated.num_bytes}), bits per byte of them say "
            "little: give more text, or a larger --validation-fraction or --eval-length"
        )
    if config.length > longest:
        session.say(
            f"note: no training file is as long as --length {config.length}: sequences have the "
            f"{longest} bytes of the longest"
        )

    task = TextTask(corpus, config)
    trainer = new_trainer(session, config, task, lambda: ByteModel(config.model))
    _describe_model(session, trainer, task.length)
    train_model(session, CHECKPOINT, trainer, checkpoint, names, corpus_digest(corpus))
    if not alone(session, trainer):
        return
    chain_saved = save_last_chain(session.out / CHAIN_FILES[0])
    session.say(f"validating on {evaluated.num_bytes:,} bytes of {len(evaluated):,} files")
    validation = validate(trainer.model, evaluated, NgramModel(corpus.train), session.world.device)
    _describe_result(session, validation, entropies)
    plot_text(session.out / "report.png", trainer.history, entropies, validation)
    content = describe_run(config, session.world, captured=session.capture)
    content["data"] = describe_corpus(corpus, evaluated)
    content["entropies"] = dataclasses.asdict(entropies)
    content["validation"] = dataclasses.asdict(validation)
    content["history"] = describe_history(trainer.history)
    content["dispatch"] = _dispatch()
    write_json(session.out / "report.json", content)
    written = ["report.json", "report.png", *CHAIN_FILES * chain_saved]
    session.say(f"wrote {', '.join(written)} and {CHECKPOINT}.pt in {session.out}")


def _load(
    files: Sequence[Path], checkpoint: Checkpoint | None, config: RunConfig
) -> tuple[Corpus, list[str]]:
    paths = list(files)
    if not paths and checkpoint is not None:
        paths = [Path(name) for name in checkpoint.files]
    paths = paths or standard_library_files()
    corpus = load_corpus(paths, config.validation_fraction)
    if checkpoint is not None and checkpoint.data_digest != corpus_digest(corpus):
        raise CheckpointError(f"{checkpoint.path}: the text files are not those it was trained on")
    return corpus, [str(path.resolve()) for path in paths]


def _note_copies(session: Session, corpus: Corpus) -> None:
    for name, first in corpus.copies:
        if name == first:
            what = "is given twice"
        elif os.path.samefile(name, first):
            what = f"is the same file as {first}"
        else:
            what = f"has the bytes of {first}"
        session.say(f"note: {name} {what}, and is read once")


def _describe_data(
    session: Session, corpus: Corpus, evaluated_bytes: int, entropies: NgramEntropies
) -> None:
    for side, documents in (("train", corpus.train), ("validation", corpus.validation)):
        session.say(f"{side:<11}{len(documents):6,} files {documents.num_bytes:12,} bytes")
    session.say(f"bits per byte of the {evaluated_bytes:,} evaluated validation bytes")
    found = entropies
    for how, unigram, bigram in (
        ("counted on train", found.unigram, found.bigram),
        ("counted on those very bytes", found.unigram_in_sample, found.bigram_in_sample),
    ):
        session.say(f"  {how:<28} unigram {unigram:.3f}   bigram {bigram:.3f}")


def _describe_model(session: Session, trainer: Trainer, length: int) -> None:
    config, world = trainer.config, session.world
    blocks = [
        "convolution + memory" if i in config.model.memory_blocks else "convolution"
        for i in range(config.model.blocks)
    ]
    session.say(
        f"model      {count_parameters(trainer.model):,} parameters: {', '.join(blocks)}; "
        f"{config.steps} steps of {config.batch_size} x {length} bytes on "
        f"{device_name(world.device)}" + (f" x {world.size}" if world.size > 1 else "")
    )


def _describe_result(session: Session, validation: Validation, entropies: NgramEntropies) -> None:
    session.say(
        f"validation {validation.bits_per_byte:.3f} bits per byte over {validation.num_bytes:,} "
        f"bytes (unigram {entropies.unigram:.3f}, bigram {entropies.bigram:.3f})"
    )
    spans = itertools.pairwise(validation.curve.edges)
    parts = [
        f"{first}-{end - 1}: {bits:.2f}"
        for (first, end), bits in zip(spans, validation.curve.model, strict=True)
    ]
    session.say("  by position  " + "  ".join(parts))


def _dispatch() -> dict[str, Any] | None:
    found = last_dispatch()
    return None if found is None else {name: str(value) for name, value in dict(found).items()}
