"""Checkpoint histories that no run writes: numbers out of range, evaluations out of order."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sdm_runtime.train.checkpoints.checkpoint import (
    CheckpointError,
    load_checkpoint,
    save_checkpoint,
)
from sdm_runtime.train.trainer.progress import SilentProgress

from .conftest import SMALL

STEPS = 6
HUGE = 10**400  # more than a float holds
TOKENS = STEPS * SMALL.batch_size * SMALL.length
Evaluations = list[tuple[Any, Any]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.pt"


@pytest.fixture
def outcome(path: Path, new_small_trainer) -> Callable[..., str]:
    """Return a function that changes the history and gives the message of the refusal."""
    trainer = new_small_trainer()
    trainer.run(STEPS, SilentProgress())
    save_checkpoint(path, trainer, ["a"], "digest")
    values = torch.load(path, weights_only=True)

    def outcome(**changes: object) -> str:
        torch.save(values | {"history": values["history"] | changes}, path)
        try:
            load_checkpoint(path)
        except CheckpointError as error:
            return str(error)
        return ""

    return outcome


@pytest.mark.parametrize(
    "wrong", [HUGE, -HUGE, 1, -1.0, math.inf, math.nan, True, "1"], ids=lambda v: str(v)[:9]
)
def test_numbers_are_floats_from_0(outcome, wrong: object) -> None:
    rest = [1.0] * (STEPS - 1)
    assert f"history.losses: expected {STEPS} numbers of at least 0" in outcome(
        losses=[*rest, wrong]
    )
    assert "history.seconds: expected at least 0" in outcome(seconds=wrong)
    assert "history.evaluations: expected " in outcome(evaluations=[(3, 1.0), (6, wrong)])
    assert outcome(losses=[*rest, 2.0], seconds=1.0, evaluations=[(3, 1.0), (6, 0.0)]) == ""


@pytest.mark.parametrize("wrong", [10**39, TOKENS + 1, 0, -1, float(TOKENS)], ids=str)
def test_tokens_are_no_more_than_the_steps_read(outcome, wrong: object) -> None:
    least = STEPS * SMALL.batch_size
    assert f"history.tokens: expected within {least}..{TOKENS}, got {wrong}" in outcome(
        tokens=wrong
    )
    assert outcome(tokens=TOKENS) == outcome(tokens=least) == ""


@pytest.mark.parametrize(
    "wrong",
    [
        [(6, 1.0), (3, 1.0)],
        [(3, 1.0), (3, 1.0), (6, 1.0)],
        [(3, 1.0), (6, 1.0), (6, 1.0)],
        [(3, 1.0)],
        [(6, 1.0)],
        [(0, 1.0), (3, 1.0), (6, 1.0)],
        [(3, 1.0), (6, 1.0), (7, 1.0)],
        [(3, 1.0), (6, 1.0), (HUGE, 1.0)],
        [(3.0, 1.0), (6, 1.0)],
        [(3, 1.0, 1.0), (6, 1.0)],
        [],
    ],
    ids=lambda pairs: " ".join(str(step)[:9] for step, *_ in pairs) or "none",
)
def test_evaluations_are_in_order_and_all_there(outcome, wrong: Evaluations) -> None:
    assert (
        "history.evaluations: expected pairs of a step and a number of at least 0, in order, one "
        "for every 3 steps and the last" in outcome(evaluations=wrong)
    )


def test_one_more_evaluation_where_a_run_ended_before_it_was_extended(outcome) -> None:
    assert outcome(evaluations=[(3, 1.0), (4, 1.0), (6, 1.0)]) == ""
    assert outcome(evaluations=[[3, 1.0], [6, 1.0]]) == ""


@pytest.mark.parametrize("digits", [400, 600])  # torch.load takes no more
@pytest.mark.parametrize("sign", [1, -1])
def test_integers_beyond_every_float(outcome, path: Path, digits: int, sign: int) -> None:
    huge = sign * 10**digits
    assert outcome() == ""
    values = torch.load(path, weights_only=True)
    assert "history.tokens: expected within " in outcome(tokens=huge)
    for name in ("step", "threads", "format", "files", "data_digest"):
        torch.save(values | {name: huge}, path)
        with pytest.raises(CheckpointError) as caught:
            load_checkpoint(path)
        assert "\n" not in str(caught.value)
    for part, names in (
        ("model", ("chunk_size", "memory_blocks")),
        ("optim", ("learning_rate", "betas", "warmup_steps")),
        ("recall", ("values",)),
        (None, ("steps", "seed", "validation_fraction")),
    ):
        for name in names:
            config = copy.deepcopy(values["config"])
            settings = config if part is None else config[part]
            settings[name] = [huge, huge] if isinstance(settings[name], list) else huge
            torch.save(values | {"config": config}, path)
            with pytest.raises(
                CheckpointError, match=r"not a readable checkpoint \(\w+: expe"
            ) as caught:
                load_checkpoint(path)
            assert "\n" not in str(caught.value)
