"""Checkpoints: on as many threads a resumed run continues bit for bit."""

from __future__ import annotations

import dataclasses
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import torch

from sdm_runtime.files.reading import open_regular
from sdm_runtime.files.writing import replacing
from sdm_runtime.train.checkpoints.checks import (
    PARTS,
    ContentError,
    check_fit,
    check_generator,
    check_parts,
    expect_names,
)
from sdm_runtime.train.config import ConfigError, RunConfig
from sdm_runtime.train.shown import short
from sdm_runtime.train.trainer.history import History
from sdm_runtime.train.trainer.loop import Trainer

FORMAT = 1


class CheckpointError(ValueError):
    """A checkpoint cannot be read or does not fit; the message names the file and the reason."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint file in memory.

    Attributes:
        path: the file.
        config: the run's settings.
        files: the text files of the run.
        data_digest: hash of the data that it was trained on.
        threads: CPU threads of the session that wrote it.
        step: steps done.
        content: the rest: model, optimizer, task, random states, history.
    """

    path: Path
    config: RunConfig
    files: list[str]
    data_digest: str
    threads: int
    step: int
    content: dict[str, Any]

    @property
    def finished(self) -> bool:
        """Return whether all steps are done."""
        return self.step >= self.config.steps


def save_checkpoint(path: Path, trainer: Trainer, files: list[str], data_digest: str) -> None:
    """Write the trainer's state; the file is replaced in one piece or not at all.

    Raises:
        OSError: it cannot be written; ``filename`` says which.
    """
    values = {
        "format": FORMAT,
        "config": trainer.config.to_dict(),
        "files": files,
        "data_digest": data_digest,
        "threads": torch.get_num_threads(),
        "step": trainer.step,
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "task": trainer.task.state(),
        "random": _random_states(trainer.world.device),
        "history": dataclasses.asdict(trainer.history),
    }
    # Somebody may have removed the folder meanwhile: no reason to lose the work.
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, one_writer=True) as sink:
        torch.save(values, cast(IO[bytes], sink))


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint file (tensors and plain data only; it cannot run code).

    Raises:
        CheckpointError: missing, damaged, of another format, or not what a run writes.
    """
    values = _read(path)
    given = values.get("format") if isinstance(values, dict) else type(values).__name__
    if type(given) is not int or given != FORMAT:
        raise CheckpointError(f"{path}: expected checkpoint format {FORMAT}, got {short(given)}")
    try:
        expect_names("", values, PARTS)
        config = RunConfig.from_dict(values.pop("config"))
        config.check_ranges()
        check_parts(values, config)
    except (ContentError, ConfigError) as error:
        raise CheckpointError(f"{path}: not a readable checkpoint ({error})") from error
    return Checkpoint(
        path=path,
        config=config,
        files=values.pop("files"),
        data_digest=values.pop("data_digest"),
        threads=values.pop("threads"),
        step=values.pop("step"),
        content=values,
    )


def _read(path: Path) -> Any:
    try:
        with open_regular(path) as file:
            # torch.save writes a zip archive: every member has a checksum.
            with zipfile.ZipFile(file) as archive:
                damaged = archive.testzip()
            if damaged is None:
                file.seek(0)
                return torch.load(file, map_location="cpu", weights_only=True)
            reason = f"checksum of {damaged}"
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such checkpoint") from None
    except OSError as error:
        raise CheckpointError(f"{path}: not a readable checkpoint ({error.strerror})") from error
    except Exception as error:  # another archive, or damage: neither library names its errors
        reason = str(error).partition("\n")[0]
        raise CheckpointError(f"{path}: not a readable checkpoint ({reason})") from error
    raise CheckpointError(f"{path}: not a readable checkpoint ({reason})")


def restore(trainer: Trainer, checkpoint: Checkpoint) -> None:
    """Bring a new trainer of the same config to where the checkpoint was written.

    Raises:
        CheckpointError: the content does not fit the trainer, which is left as it was.
    """
    content, device = checkpoint.content, trainer.world.device
    try:
        check_fit(content, trainer, checkpoint.step)
        if device.type == "cuda" and content["random"]["cuda"] is not None:
            check_generator("random.cuda", content["random"]["cuda"], device)
        trainer.task.restore(content["task"])
    except ContentError as error:
        raise CheckpointError(f"{checkpoint.path}: does not fit the run ({error})") from error
    trainer.model.load_state_dict(content["model"])
    _load_optimizer(trainer.optimizer, content["optimizer"])
    trainer.step = checkpoint.step
    history = dict(content["history"])
    history["evaluations"] = [tuple(pair) for pair in history["evaluations"]]
    trainer.history = History(**history)
    torch.set_rng_state(content["random"]["cpu"])
    if device.type == "cuda" and content["random"]["cuda"] is not None:
        torch.cuda.set_rng_state(content["random"]["cuda"], device)


def _load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    # The groups' settings are the config's, not the file's: a run may change its device. Loading
    # puts new rate tensors into them; the shared one stays, its value is set by the next step.
    rates = [group["lr"] for group in optimizer.param_groups]
    own = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state["state"], "param_groups": own})
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def _random_states(device: torch.device) -> dict[str, Any]:
    cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return {"cpu": torch.get_rng_state(), "cuda": cuda}
