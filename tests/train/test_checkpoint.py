"""Checkpoints and resumption, bit for bit."""

from __future__ import annotations

import dataclasses
import signal
import zipfile
from pathlib import Path

import pytest
import torch

from sdm_runtime.train.checkpoints.checkpoint import (
    CheckpointError,
    load_checkpoint,
    restore,
    save_checkpoint,
)
from sdm_runtime.train.config import ConfigError
from sdm_runtime.train.run.interrupts import Stopped, stop_on_signal
from sdm_runtime.train.run.session import find_checkpoint, settle_config, train_model
from sdm_runtime.train.trainer.progress import SilentProgress

from .conftest import SMALL


def state_of(trainer) -> list[torch.Tensor]:
    moments = [
        value
        for state in trainer.optimizer.state.values()
        for value in state.values()
        if torch.is_tensor(value)
    ]
    return [*trainer.model.state_dict().values(), *moments]


def test_resumed_run_equals_an_uninterrupted_one(new_small_trainer, tmp_path: Path) -> None:
    whole = new_small_trainer()
    whole.run(6, SilentProgress())
    first = new_small_trainer()
    first.run(4, SilentProgress())
    save_checkpoint(tmp_path / "c.pt", first, ["a"], "digest")
    torch.rand(7)

    second = new_small_trainer()
    checkpoint = load_checkpoint(tmp_path / "c.pt")
    assert (checkpoint.step, checkpoint.files, checkpoint.finished) == (4, ["a"], False)
    restore(second, checkpoint)
    second.run(6, SilentProgress())
    assert second.history.losses == whole.history.losses
    assert second.history.evaluations == whole.history.evaluations
    assert second.history.tokens == whole.history.tokens
    assert all(map(torch.equal, state_of(second), state_of(whole)))


@pytest.mark.parametrize("forgotten", ["model", "optimizer", "task"])
def test_every_part_matters(new_small_trainer, tmp_path: Path, forgotten: str) -> None:
    first = new_small_trainer()
    first.run(4, SilentProgress())
    save_checkpoint(tmp_path / "c.pt", first, [], "")
    checkpoint = load_checkpoint(tmp_path / "c.pt")
    fresh = new_small_trainer()
    zeros = {
        number: {name: value * (name == "step") for name, value in moments.items()}
        for number, moments in checkpoint.content["optimizer"]["state"].items()
    }
    blank = {
        "model": fresh.model.state_dict(),
        "optimizer": checkpoint.content["optimizer"] | {"state": zeros},
        "task": fresh.task.state(),
    }
    checkpoint.content[forgotten] = blank[forgotten]
    restore(fresh, checkpoint)
    first.run(6, SilentProgress())
    fresh.run(6, SilentProgress())
    assert fresh.history.losses != first.history.losses


def test_random_state_is_kept(new_small_trainer, tmp_path: Path) -> None:
    trainer = new_small_trainer()
    save_checkpoint(tmp_path / "c.pt", trainer, [], "")
    want = torch.rand(3)
    restore(trainer, load_checkpoint(tmp_path / "c.pt"))
    assert torch.equal(torch.rand(3), want)


def test_session_stops_and_goes_on(new_small_trainer, session) -> None:
    whole = new_small_trainer()
    whole.run(6, SilentProgress())
    part = dataclasses.replace(session, stop_after=3)
    with pytest.raises(Stopped, match="step 3 of 6; continue with --resume"):
        train_model(part, "c", new_small_trainer(), None, [], "")
    with pytest.raises(ConfigError, match=r"step 3 of 6: continue it with --resume"):
        find_checkpoint(session, "c")
    assert find_checkpoint(dataclasses.replace(session, fresh=True), "c") is None
    found = find_checkpoint(dataclasses.replace(session, resume=True), "c")
    again = new_small_trainer()
    train_model(session, "c", again, found, [], "")
    assert again.history.losses == whole.history.losses
    assert load_checkpoint(session.out / "c.pt").finished
    assert find_checkpoint(session, "c", last=False) is None
    with pytest.raises(ConfigError, match=r"step 6 of 6: continue it with --resume, start over"):
        find_checkpoint(session, "c")


def test_other_config_is_refused(new_small_trainer, session, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c.pt", new_small_trainer(), [], "")
    checkpoint = load_checkpoint(tmp_path / "c.pt")
    same = checkpoint.config
    assert settle_config(session, same, checkpoint) == same
    other = same.replaced({"model.dim": 32, "steps": 7})
    with pytest.raises(
        ConfigError, match=r"steps: saved 6, given 7; model.dim: saved 16, given 32"
    ):
        settle_config(session, other, checkpoint)


def test_damaged_files_are_refused(new_small_trainer, tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        load_checkpoint(path)
    save_checkpoint(path, new_small_trainer(), [], "")
    whole = path.read_bytes()
    at = whole.index(b"optimizer")
    flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    for damaged in (b"", b"text", whole[: len(whole) // 2], flipped):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="not a readable checkpoint"):
            load_checkpoint(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "an archive of something else")
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        load_checkpoint(path)
    torch.save({"format": 1, "config": {}, "step": 3}, path)
    with pytest.raises(CheckpointError, match=r"\(files: expected a part of this name, got none\)"):
        load_checkpoint(path)
    torch.save({"format": 99}, path)
    with pytest.raises(CheckpointError, match="expected checkpoint format 1, got 99"):
        load_checkpoint(path)
    torch.save([1], path)
    with pytest.raises(CheckpointError, match="got list"):
        load_checkpoint(path)


@pytest.mark.parametrize("reader", ["zipfile.ZipFile.testzip", "torch.load"])
def test_a_signal_while_a_checkpoint_is_read_is_a_stop(
    new_small_trainer, tmp_path: Path, monkeypatch, reader: str
) -> None:
    save_checkpoint(tmp_path / "c.pt", new_small_trainer(), [], "")
    monkeypatch.setattr(reader, lambda *_, **__: signal.raise_signal(signal.SIGTERM))
    with stop_on_signal() as stop:
        stop.obey("stopped before a step was taken")
        with pytest.raises(Stopped, match="stopped before a step was taken"):
            load_checkpoint(tmp_path / "c.pt")


def test_a_failed_save_keeps_the_old_file(new_small_trainer, tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "c.pt"
    trainer = new_small_trainer()
    save_checkpoint(path, trainer, ["old"], "")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        save_checkpoint(path, trainer, ["new"], "")
    assert load_checkpoint(path).files == ["old"]


def test_a_folder_that_was_removed_is_made_again(new_small_trainer, tmp_path: Path) -> None:
    path = tmp_path / "gone" / "run" / "c.pt"
    save_checkpoint(path, new_small_trainer(), ["kept"], "")
    assert load_checkpoint(path).files == ["kept"]
    assert [entry.name for entry in path.parent.iterdir()] == ["c.pt"]


def test_config_survives_the_way_through_plain_data() -> None:
    config = SMALL.replaced({"model.memory_blocks": [0, 1], "optim.clip_norm": 0.5, "seed": 3})
    assert type(config).from_dict(config.to_dict()) == config
    assert config.model.memory_blocks == (0, 1)
    with pytest.raises(KeyError):
        SMALL.replaced({"model.nothing": 1})
