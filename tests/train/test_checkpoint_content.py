"""Checkpoints that are intact, byte for byte, and do not hold what a run writes."""

from __future__ import annotations

import copy
import dataclasses
import math
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sdm_runtime.train.checkpoints.checkpoint import (
    CheckpointError,
    load_checkpoint,
    restore,
    save_checkpoint,
)
from sdm_runtime.train.run.session import _warn_of_threads
from sdm_runtime.train.trainer.progress import SilentProgress

from .commands import SIZES, TEXT_SIZES

STEPS = 3
OTHER_TENSORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "float": torch.Tensor.double,
    "layout": torch.Tensor.to_sparse,
    "shape": lambda tensor: tensor.new_zeros(7, 7),
}
# Of other types than any part of a checkpoint, or out of its range.
WRONG: tuple[Any, ...] = (None, "x", -1, math.nan, True, [], {}, (1,), torch.zeros(2, 3), "\0")


# What a run could have written as well; the model is not built from this config here.
AS_GOOD = {
    "('config', 'model', 'memory_blocks') = []",
    "('config', 'model', 'memory_blocks') = (1,)",
    "without ('config', 'model', 'memory_blocks', 0)",
    "('files',) = []",
    "without ('files', 0)",
    "('data_digest',) = '\\x00'",
}


@pytest.fixture
def path(tmp_path: Path, new_small_trainer) -> Path:
    trainer = new_small_trainer()
    trainer.run(STEPS, SilentProgress())
    path = tmp_path / "c.pt"
    save_checkpoint(path, trainer, ["a"], "digest")
    return path


def places(values: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where every part of nested data is; of many alike the first and the last alone."""
    if at:
        yield at
    if isinstance(values, dict):
        names = list(values)
        for name in names if len(names) < 16 else (names[0], names[-1]):
            yield from places(values[name], (*at, name))
    elif isinstance(values, list) and values:
        yield from places(values[0], (*at, 0))


def part(values: Any, at: tuple[Any, ...]) -> Any:
    for name in at:
        values = values[name]
    return values


def is_a_setting_of_the_optimizer(at: tuple[Any, ...]) -> bool:
    """Say whether the config decides it, whatever the file says."""
    return at[:2] == ("optimizer", "param_groups") and len(at) == 4 and at[3] != "params"


def is_alike(old: Any, new: Any) -> bool:
    """Say whether a value is no other than the one that was there, or another text."""
    if isinstance(old, str) and isinstance(new, str):
        return "\0" not in new
    return type(old) is type(new) and not isinstance(old, torch.Tensor) and old == new


def damaged(values: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the values with one part replaced, removed or added, everywhere."""
    for at in places(values):
        if is_a_setting_of_the_optimizer(at):
            continue
        for wrong in WRONG:
            if is_alike(part(values, at), wrong):
                continue
            changed = copy.deepcopy(values)
            part(changed, at[:-1])[at[-1]] = wrong
            yield f"{at} = {wrong!r}", changed
        changed = copy.deepcopy(values)
        del part(changed, at[:-1])[at[-1]]
        yield f"without {at}", changed
        if isinstance(part(values, at), dict) and "param_groups" not in at:
            for name in ("nothing", 99):
                changed = copy.deepcopy(values)
                part(changed, at)[name] = 1
                yield f"more in {at}", changed
        if torch.is_tensor(part(values, at)):
            for kind, how in OTHER_TENSORS.items():
                changed = copy.deepcopy(values)
                parent = part(changed, at[:-1])
                parent[at[-1]] = how(parent[at[-1]])
                yield f"another {kind} at {at}", changed


def outcome(path: Path, values: Any, trainer: Any) -> str:
    """Return the message with which the values are refused, or nothing where they are taken."""
    torch.save(values, path)
    try:
        restore(trainer, load_checkpoint(path))
    except CheckpointError as error:
        return str(error)
    return ""


@pytest.mark.slow
def test_every_change_is_refused_in_one_line(path: Path, new_small_trainer) -> None:
    values = torch.load(path, weights_only=True)
    trainer, untouched = new_small_trainer(), new_small_trainer()
    taken, count = [], 0
    for what, changed in damaged(values):
        message = outcome(path, changed, trainer)
        count += 1
        if not message.startswith(f"{path}: ") or "\n" in message or len(message) > 300:
            taken.append((what, message))
            trainer = new_small_trainer()
    assert {what for what, _ in taken} == AS_GOOD, taken
    assert count > 500
    # Nothing of them has reached the trainer.
    assert trainer.step == 0
    assert trainer.task.state() == untouched.task.state()
    assert not trainer.optimizer.state
    for own, new in zip(trainer.model.parameters(), untouched.model.parameters(), strict=True):
        assert torch.equal(own, new)
    # The control: unchanged, it is taken.
    assert outcome(path, values, trainer) == ""
    assert trainer.step == STEPS


def test_messages_name_the_part(path: Path, new_small_trainer) -> None:
    values = torch.load(path, weights_only=True)

    def message(change: Callable[[dict[str, Any]], object]) -> str:
        changed = copy.deepcopy(values)
        change(changed)
        return outcome(path, changed, new_small_trainer())

    for change, wanted in (
        (lambda v: v["config"].update(bogus=1), "config.bogus: expected no such setting, got 1"),
        (lambda v: v["config"].pop("model"), "config.model: expected a setting of this name"),
        (lambda v: v["config"]["model"].update(dim=0), "dim: expected at least 1, got 0"),
        (lambda v: v.update(step="x"), "step: expected a number within 0..6, got x"),
        (
            lambda v: v["model"].pop("norm.bias"),
            "model.norm.bias: expected a part of this name, got none",
        ),
        (
            lambda v: v["model"].update({"norm.bias": torch.zeros(3)}),
            "model.norm.bias: expected float32 [16], got float32 [3]",
        ),
        (
            lambda v: v["random"].update(cpu=torch.zeros(5056, dtype=torch.uint8)),
            "random.cpu: expected a generator's state, got uint8 [5056]",
        ),
        (
            lambda v: v["task"].update(drawn=10**6),
            "task.drawn: expected within 0..",
        ),
        (
            lambda v: v["optimizer"]["state"][0].pop("exp_avg"),
            "optimizer.state.0.exp_avg: expected a part of this name",
        ),
    ):
        assert wanted in message(change)


def test_settings_of_the_optimizer_are_the_configs(path: Path, new_small_trainer) -> None:
    values = torch.load(path, weights_only=True)
    for group in values["optimizer"]["param_groups"]:
        group.update(weight_decay=9.0, capturable=True, betas=(0.1, 0.1), fused=False)
    trainer, other = new_small_trainer(), new_small_trainer()
    assert outcome(path, values, trainer) == ""
    for own, new in zip(trainer.optimizer.param_groups, other.optimizer.param_groups, strict=True):
        assert {**own, "params": 0, "lr": 0} == {**new, "params": 0, "lr": 0}


@pytest.mark.parametrize("kind", ["cut", "flipped"])
def test_damaged_bytes_are_refused(path: Path, new_small_trainer, kind: str) -> None:
    whole = path.read_bytes()
    chance = torch.Generator().manual_seed(0)
    messages = []
    for at in torch.randint(len(whole), (150,), generator=chance).tolist():
        bits = bytes([whole[at] ^ (1 << at % 8)])
        path.write_bytes(whole[:at] if kind == "cut" else whole[:at] + bits + whole[at + 1 :])
        try:
            restore(new_small_trainer(), load_checkpoint(path))
        except CheckpointError as error:
            messages.append(str(error))
    assert all(m.startswith(f"{path}: ") and "\n" not in m for m in messages)
    assert len(messages) == 150 if kind == "cut" else len(messages) > 100


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "c.pt"
    os.mkfifo(pipe)
    # Should it be opened after all, this writer ends the wait.
    late = threading.Timer(20, lambda: os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)))
    late.start()
    for path in (pipe, Path("/dev/zero"), tmp_path):
        with pytest.raises(CheckpointError, match=f"{path}: not a readable checkpoint .not a reg"):
            load_checkpoint(path)
    assert late.is_alive()
    late.cancel()


def test_a_pipe_in_the_runs_folder(sdm_train, text_files: list[Path]) -> None:
    Path("runs/text").mkdir(parents=True)
    os.mkfifo("runs/text/checkpoint.pt")
    for words in ([], ["--resume"]):
        done = sdm_train(*TEXT_SIZES, *text_files, *words)
        assert (done.status, done.err.count("\n")) == (2, 1)
        assert "runs/text/checkpoint.pt: not a readable checkpoint (not a regular" in done.err
    assert sdm_train(*TEXT_SIZES, *text_files, "--fresh").status == 0


def test_a_checkpoint_of_the_other_task(sdm_train, text_files: list[Path]) -> None:
    assert sdm_train(*TEXT_SIZES, *text_files, "--stop-after", 1).status == 130
    Path("runs/recall").mkdir()
    Path("runs/text/checkpoint.pt").rename("runs/recall/with_memory.pt")
    done = sdm_train("--task", "recall", "--resume", "--device", "cpu")
    assert done.status == 2
    assert "runs/recall/with_memory.pt: a run of text, not recall" in done.err


def test_resume_names_the_other_tasks_checkpoint(sdm_train, text_files: list[Path]) -> None:
    recall = ["--task", "recall", "--resume", "--device", "cpu"]
    assert sdm_train(*TEXT_SIZES, *text_files, "--stop-after", 1).status == 130
    done = sdm_train(*recall)
    assert (done.status, done.err) == (
        2,
        "sdm-train: error: runs/recall/with_memory.pt: no such checkpoint, but there is "
        "runs/text/checkpoint.pt, of --task text\n",
    )
    Path("runs/text").rename("one")
    Path("one/checkpoint.pt").rename("one/with_memory.pt")
    done = sdm_train("--resume", "--out", "one")
    assert "one/checkpoint.pt: no such checkpoint, but there is one/with_memory.pt" in done.err
    assert sdm_train(*recall).err.endswith("runs/recall/with_memory.pt: no such checkpoint\n")


def test_threads_are_counted_in_english(
    path: Path, new_small_trainer, session, monkeypatch
) -> None:
    said: list[str] = []
    session.console.print = lambda text, **_: said.append(text.partition(" and continues")[0])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    for threads in (1, 2, 3):
        _warn_of_threads(session, dataclasses.replace(load_checkpoint(path), threads=threads))
    assert said == ["note: the run was on 1 thread", "note: the run was on 2 threads"]


def test_the_control_is_of_the_same_run(sdm_train) -> None:
    words = ["--task", "recall", *SIZES, "--pairs", 3, "--gap", 8, "--keys", 6, "--values", 4]
    assert sdm_train(*words).status == 0
    assert sdm_train(*words, "--dim", 32, "--out", "other").status == 0
    Path("other/without_memory.pt").rename("runs/recall/without_memory.pt")
    done = sdm_train("--task", "recall", "--resume", "--device", "cpu")
    assert done.status == 2
    assert "without_memory.pt was written by another config: model.dim: saved 32, given" in done.err
