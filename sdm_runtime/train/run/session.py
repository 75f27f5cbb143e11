"""One session of a run: where its files are, and how it is started, continued and stopped."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

import torch
from torch import nn

from sdm_runtime.dispatch import keep_last_chain
from sdm_runtime.files.writing import partial_name
from sdm_runtime.train.checkpoints.checkpoint import (
    Checkpoint,
    CheckpointError,
    load_checkpoint,
    restore,
    save_checkpoint,
)
from sdm_runtime.train.config import ConfigError, RunConfig, differences
from sdm_runtime.train.run.interrupts import Stopped, StopRequest
from sdm_runtime.train.run.memory import expect_room
from sdm_runtime.train.trainer.distributed import World
from sdm_runtime.train.trainer.loop import Task, Trainer
from sdm_runtime.train.trainer.progress import SilentProgress, make_progress

if TYPE_CHECKING:
    from rich.console import Console

CHECKPOINTS = {"text": "checkpoint", "recall": "with_memory"}
"""The checkpoint of each task, without its ending; the recall task has another after it."""


@dataclass(frozen=True)
class Session:
    """How this session runs; none of it changes a number.

    Attributes:
        out: folder of the run's files.
        console: where to print.
        world: this process among those of the run.
        resume: continue the run in ``out``.
        fresh: start over even though ``out`` holds a run.
        checkpoint_every: steps between checkpoints.
        stop_after: stop when this many steps are done (for running in parts).
        capture: replay the training step as a CUDA graph.
        stop: whether the session is to end.
    """

    out: Path
    console: Console
    world: World
    resume: bool = False
    fresh: bool = False
    checkpoint_every: int = 100
    stop_after: int | None = None
    capture: bool = False
    stop: StopRequest = field(default_factory=StopRequest)

    def say(self, text: str) -> None:
        """Print a line, once for all processes."""
        if self.world.is_main:
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)


def settle_config(session: Session, given: RunConfig, checkpoint: Checkpoint | None) -> RunConfig:
    """Return the run's config: the given one, which a resumed run's must equal.

    Raises:
        ConfigError: a setting is out of range or is not the resumed run's.
    """
    given.check()
    session.world.check_batch(given.batch_size)
    if checkpoint is not None:
        expect_config(checkpoint, given)
    return given


def expect_config(checkpoint: Checkpoint, given: RunConfig) -> None:
    """Raise ConfigError unless the checkpoint was written by the given config.

    One setting may differ: a run that has done all its steps is extended by more of them.
    """
    saved = checkpoint.config
    if checkpoint.finished and given.steps > saved.steps:
        saved = dataclasses.replace(saved, steps=given.steps)
    if wrong := differences(saved, given):
        hint = ""
        if saved.steps < given.steps:
            hint = f" (more steps once it has done its {saved.steps})"
        raise ConfigError(
            f"{checkpoint.path} was written by another config: {'; '.join(wrong)}{hint}"
        )


def find_checkpoint(session: Session, name: str, *, last: bool = True) -> Checkpoint | None:
    """Return the checkpoint to continue from, or None to start at step 0.

    Args:
        session: whose folder it is.
        name: of the checkpoint file, without its ending.
        last: the run ends with this model; otherwise a finished one leaves the word to the next.

    Raises:
        ConfigError: there is a run and it was not said what to do with it.
        CheckpointError: ``resume`` without a readable checkpoint.
    """
    path = session.out / f"{name}.pt"
    if session.resume:
        _expect_checkpoint(path)
        return load_checkpoint(path)
    if session.fresh or not path.exists():
        return None
    found = load_checkpoint(path)
    if found.finished and not last:
        return None
    raise ConfigError(already_there(session, f"at step {found.step} of {found.config.steps}"))


def _expect_checkpoint(path: Path) -> None:
    """Raise CheckpointError where there is none; it names the other task's, if that is there."""
    if path.exists():
        return
    for task, name in CHECKPOINTS.items():
        # Without --out the tasks have folders of their own, beside each other.
        for folder in dict.fromkeys((path.parent, path.parent.with_name(task))):
            other = folder / f"{name}.pt"
            if name != path.stem and other.is_file():
                raise CheckpointError(
                    f"{path}: no such checkpoint, but there is {other}, of --task {task}"
                )
    raise CheckpointError(f"{path}: no such checkpoint")


def already_there(session: Session, where: str) -> str:
    """Return what is said of a run, finished or not, that would be overwritten."""
    return (
        f"{session.out} holds a run {where}: continue it with --resume, start over with --fresh, "
        "or give another --out"
    )


def claim(session: Session, names: Sequence[str], *, keep: bool) -> None:
    """Make sure that the run's files can be written, before any step.

    Args:
        session: whose folder it is.
        names: of the files.
        keep: leave those that are there; otherwise they are removed, so that none of an earlier
            run is taken for this one's.

    Raises:
        ConfigError: the folder or a file that is kept cannot be written, or a folder stands where
            a file will.
        OSError: a file cannot be removed.
    """
    session.world.wait_for_all()  # another process may still read one of them
    paths = [session.out / name for name in names]

    def prepare() -> None:
        _expect_writable(session.out, paths)
        for path in paths:
            if keep:
                _expect_replaceable(path)
            else:
                path.unlink(missing_ok=True)

    _on_main(session.world, prepare)


def train_model(
    session: Session,
    name: str,
    trainer: Trainer,
    checkpoint: Checkpoint | None,
    files: list[str],
    data_digest: str,
) -> None:
    """Train to the end, writing checkpoints ``<out>/<name>.pt``.

    Args:
        session: where and how.
        name: of the checkpoint file.
        trainer: new; brought to where ``checkpoint`` was written.
        checkpoint: what to continue, or None.
        files: the run's text files, kept in the checkpoint.
        data_digest: hash of the data, kept in the checkpoint.

    Raises:
        OSError: the checkpoint cannot be written; ``filename`` says which.
        Stopped: asked to stop before the end; the checkpoint is written.
        TrainingError: the loss is not finite.
    """
    main = session.world.is_main
    keep_last_chain(main)
    if checkpoint is not None:
        _warn_of_threads(session, checkpoint)
        restore(trainer, checkpoint)
    steps = trainer.config.steps
    goal = steps if session.stop_after is None else min(steps, session.stop_after)
    path = session.out / f"{name}.pt"
    unit = "symbol" if trainer.config.task == "recall" else "byte"
    progress = (
        make_progress(session.console, steps, trainer.step, trainer.history, unit)
        if main
        else SilentProgress()
    )
    stop, stopped = session.stop, False
    with stop.in_time(), progress:
        while trainer.step < goal and not stopped:
            every = session.checkpoint_every
            until = min(goal, (trainer.step // every + 1) * every)
            stopped = trainer.run(until, progress, lambda: stop.requested)
            stop.requested |= stopped
            # Nobody goes on, or ends, before the file is there.
            _on_main(session.world, lambda: save_checkpoint(path, trainer, files, data_digest))
    if stopped or trainer.step < steps:
        raise Stopped(_stopped_at(trainer))
    if session.world.size == 1:
        stop.obey(_stopped_at(trainer))


def alone(session: Session, trainer: Trainer) -> bool:
    """Return whether this process is the main one, which from here on works alone.

    Raises:
        Stopped: it was asked to stop meanwhile; a later signal ends it at once.
    """
    if session.world.is_main:
        session.stop.obey(_stopped_at(trainer))
    return session.world.is_main


def _stopped_at(trainer: Trainer) -> str:
    return f"stopped at step {trainer.step} of {trainer.config.steps}; continue with --resume"


def new_trainer(
    session: Session, config: RunConfig, task: Task, build: Callable[[], nn.Module]
) -> Trainer:
    """Return a trainer of ``build()``, whose initial weights depend on the config's seed alone."""
    torch.manual_seed(config.seed)
    return Trainer(config, build(), task, session.world, capture=session.capture)


def agree_on_room(
    session: Session, config: RunConfig, longest: int = 0, longest_validation: int = 0
) -> None:
    """Raise ConfigError in every process where a size does not fit into the memory of one."""
    error: ConfigError | None = None
    try:
        expect_room(config, session.world, longest, longest_validation)
    except ConfigError as found:
        error = found
    session.world.agree(error)


def _on_main(world: World, work: Callable[[], None]) -> None:
    """Do the main process's work; all processes wait for it, and end where it fails."""
    error: Exception | None = None
    if world.is_main:
        try:
            work()
        except (OSError, ConfigError) as failed:
            error = failed
    world.agree(error)


def _expect_writable(out: Path, paths: Sequence[Path]) -> None:
    _expect_room_in(out, make=True)
    partial = [partial_name(path) for path in paths if path.suffix == ".pt"]
    for path in [*partial, *paths]:
        if path.is_dir() and not path.is_symlink():
            raise ConfigError(_in_the_way(path, "folder"))


def _expect_replaceable(path: Path) -> None:
    """Of a file that is kept: what the run writes there later takes its place."""
    for kind, found in (("folder", path.is_dir()), ("pipe", path.is_fifo())):
        if found:  # a pipe would wait for a reader
            raise ConfigError(_in_the_way(path, kind))
    if path.exists() and not os.access(path, os.W_OK):
        raise ConfigError(f"out: expected files that can be written, got {path}")
    if path.is_symlink() and (path.is_file() or not path.exists()):
        _expect_room_in(path.resolve().parent)


def _expect_room_in(folder: Path, *, make: bool = False) -> None:
    try:
        if make:
            folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(
            f"out: expected a folder that can be written, got {folder} ({error.strerror})"
        ) from error


def _in_the_way(path: Path, kind: str) -> str:
    return f"out: expected room for the file {path}, got a {kind} of that name"


def _warn_of_threads(session: Session, checkpoint: Checkpoint) -> None:
    threads, before = torch.get_num_threads(), checkpoint.threads
    if session.world.device.type == "cpu" and threads != before:
        session.say(
            f"note: the run was on {before} thread{'s' * (before > 1)} and continues on {threads}: "
            "torch's sums may differ in the last bit"
        )
