"""A whole run of the recall task: the model with its memory layers, then without."""

from __future__ import annotations

import dataclasses
from typing import Any

from sdm_runtime.train.checkpoints.checkpoint import Checkpoint
from sdm_runtime.train.config import ConfigError, RunConfig
from sdm_runtime.train.report.plots import plot_recall
from sdm_runtime.train.report.report import (
    CHAIN_FILES,
    describe_history,
    describe_run,
    save_last_chain,
    write_json,
)
from sdm_runtime.train.run.session import (
    CHECKPOINTS,
    Session,
    agree_on_room,
    alone,
    already_there,
    claim,
    expect_config,
    find_checkpoint,
    new_trainer,
    train_model,
)
from sdm_runtime.train.tasks.recall import RecallTask
from sdm_runtime.train.trainer.loop import Trainer
from sdm_runtime.train.trainer.model import ByteModel, count_parameters

MEMORY, CONTROL = CHECKPOINTS["recall"], "without_memory"
_FILES = (f"{MEMORY}.pt", f"{CONTROL}.pt", "report.json", "report.png", *CHAIN_FILES)


def run_recall(session: Session, config: RunConfig, checkpoint: Checkpoint | None) -> None:
    """Train both models and write ``report.json``, ``report.png`` and the last chain.

    Args:
        session: where and how.
        config: checked.
        checkpoint: of the model with memory, or None.

    Raises:
        Stopped: the session ended early.
        TrainingError: the loss is not finite.
    """
    task = config.recall
    control = dataclasses.replace(config, model=dataclasses.replace(config.model, memory_blocks=()))
    started = _find_control(session, control)
    agree_on_room(session, config)
    claim(session, _FILES, keep=checkpoint is not None)
    session.say(
        f"recall     {task.pairs} pairs, {task.gap} filler symbols, {task.pairs} questions; "
        f"local window {config.model.local_window}, chance {1 / task.values:.1%}"
    )
    memory = _train(session, MEMORY, config, checkpoint)
    chain_saved = session.world.is_main and save_last_chain(session.out / CHAIN_FILES[0])
    plain = _train(session, CONTROL, control, started)
    if alone(session, plain):
        _report(session, config, memory, plain, chain_saved=chain_saved)


def _find_control(session: Session, control: RunConfig) -> Checkpoint | None:
    """Return the checkpoint of the model without memory to continue from, or None.

    Raises:
        ConfigError: it is of another config, or the run in the folder ended between the two models
            and it was not said what to do with it.
    """
    memory, path = (session.out / f"{name}.pt" for name in (MEMORY, CONTROL))
    if path.exists():
        found = find_checkpoint(session, CONTROL)
        if found is not None:
            expect_config(found, control)
        return found
    if memory.exists() and not (session.resume or session.fresh):
        raise ConfigError(already_there(session, "between its two models"))
    return None


def _train(
    session: Session, name: str, config: RunConfig, checkpoint: Checkpoint | None
) -> Trainer:
    trainer = new_trainer(session, config, RecallTask(config), lambda: ByteModel(config.model))
    label = name.replace("_", " ")
    session.say(f"{label}: {count_parameters(trainer.model):,} parameters, {config.steps} steps")
    train_model(session, name, trainer, checkpoint, [], "")
    return trainer


def _report(
    session: Session, config: RunConfig, memory: Trainer, plain: Trainer, *, chain_saved: bool
) -> None:
    task, chance = config.recall, 1 / config.recall.values
    accuracy = {MEMORY: _final(memory), CONTROL: _final(plain)}
    session.say(
        f"recall over a gap of {task.gap}: {accuracy[MEMORY]:.1%} with memory, "
        f"{accuracy[CONTROL]:.1%} without, chance {chance:.1%}"
    )
    window = config.model.local_window
    plot_recall(session.out / "report.png", memory.history, plain.history, chance, task.gap, window)
    content: dict[str, Any] = describe_run(config, session.world, captured=session.capture)
    content |= {"chance": chance, "local_window": window, "accuracy": accuracy}
    content["history"] = {
        name: describe_history(trainer.history)
        for name, trainer in ((MEMORY, memory), (CONTROL, plain))
    }
    write_json(session.out / "report.json", content)
    written = ["report.json", "report.png", *CHAIN_FILES * chain_saved]
    session.say(f"wrote {', '.join(written)} and both checkpoints in {session.out}")


def _final(trainer: Trainer) -> float:
    return trainer.history.evaluations[-1][1]
