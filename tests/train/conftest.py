"""Small corpora, configs and a stand-in memory layer for the training tests."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from sdm_runtime.train.config import ModelConfig, RunConfig
from sdm_runtime.train.data.corpus import Corpus, load_corpus
from sdm_runtime.train.run import cli
from sdm_runtime.train.run.session import Session
from sdm_runtime.train.tasks.text import TextTask
from sdm_runtime.train.trainer.distributed import World
from sdm_runtime.train.trainer.loop import Trainer
from sdm_runtime.train.trainer.model import ByteModel

from .commands import Outcome

WORDS = ["def ", "return ", "self.", "value", "import ", "if ", "else:\n", "    ", "(x)", " = 1\n"]
SMALL = RunConfig(
    steps=6,
    batch_size=4,
    length=48,
    eval_length=64,
    eval_every=3,
    model=ModelConfig(dim=16, blocks=2, kernel=3, memory_blocks=(), slots=16, writes=2, reads=2),
)


class RunningMean(nn.Module):
    """Stands in for the memory layer: mixes in the mean of all positions so far."""

    def __init__(self, config: ModelConfig, block: int) -> None:
        super().__init__()
        self.out = nn.Linear(config.dim, config.dim)

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        count = torch.arange(1, x.shape[1] + 1, dtype=x.dtype).view(1, -1, 1)
        return self.out(x.cumsum(1) / count), None


@pytest.fixture
def text_files(tmp_path: Path) -> list[Path]:
    """Return twelve files of different lengths, one shorter than a training sequence."""
    chance = random.Random(5)
    folder = tmp_path / "text"
    folder.mkdir()
    paths = []
    for index in range(12):
        words = chance.choices(WORDS, k=4 if index == 3 else 60 + 10 * index)
        path = folder / f"file{index}.py"
        path.write_text("".join(words))
        paths.append(path)
    return paths


@pytest.fixture
def corpus(text_files: list[Path]) -> Corpus:
    return load_corpus(text_files, 0.25)


@pytest.fixture
def alone() -> World:
    return World(rank=0, size=1, device=torch.device("cpu"))


@pytest.fixture
def session(tmp_path: Path, alone: World) -> Session:
    """Return a session that prints into a file."""
    console = Console(file=tmp_path.joinpath("printed.txt").open("w"), width=200)
    return Session(out=tmp_path / "run", console=console, world=alone, checkpoint_every=2)


@pytest.fixture
def new_small_trainer(corpus: Corpus, alone: World):
    """Return a function that makes a trainer of the small model with the stand-in memory."""

    def make(config: RunConfig = SMALL, memory_blocks: tuple[int, ...] = (0,)) -> Trainer:
        config = config.replaced({"model.memory_blocks": list(memory_blocks)})
        torch.manual_seed(config.seed)
        model = ByteModel(config.model, RunningMean)
        return Trainer(config, model, TextTask(corpus, config), alone)

    return make


@pytest.fixture
def sdm_train(monkeypatch, capfd, tmp_path: Path) -> Callable[..., Outcome]:
    """Return a function that runs the command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["sdm-train", *map(str, words)])
        status: int | str | None = 0
        try:
            cli.main()
        except SystemExit as end:
            status = end.code
        captured = capfd.readouterr()
        return Outcome(int(status or 0), captured.out, captured.err)

    return run
