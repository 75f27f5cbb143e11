"""Settings out of range, one by one."""

from __future__ import annotations

import math
from typing import Any, Literal

import pytest

from sdm_runtime.train.config import DEFAULTS, ConfigError

BAD: list[tuple[str, Any, str]] = [
    ("steps", 0, "at least 1, got 0"),
    ("batch_size", 0, "at least 1, got 0"),
    ("length", 0, "at least 1, got 0"),
    ("eval_length", -1, "at least 1, got -1"),
    ("eval_every", 0, "at least 1, got 0"),
    ("validation_fraction", 1.0, r"within \(0, 1\), got 1.0"),
    ("seed", -1, r"within 0..2\^32-1, got -1"),
    ("model.dim", 0, "at least 1, got 0"),
    ("model.blocks", 0, "at least 1, got 0"),
    ("model.kernel", 0, "at least 1, got 0"),
    ("model.memory_blocks", [9], r"below \d, got 9"),
    ("model.memory_heads", 3, "dim: expected a multiple of memory_heads = 3, got"),
    ("model.slots", 1000, "a square number, got 1000"),
    ("model.writes", 257, "at most slots and 256, got 257"),
    ("model.reads", 0, "at least 1, got 0"),
    ("model.chunk_size", 8, "within 16..256, got 8"),
    ("optim.learning_rate", 0.0, "above 0, got 0.0"),
    ("optim.learning_rate", math.inf, "above 0, got inf"),
    ("optim.weight_decay", math.inf, "at least 0, got inf"),
    ("optim.betas", [0.9, 1.0], r"within \[0, 1\), got 1.0"),
    ("optim.betas", [-0.1, 0.9], r"within \[0, 1\), got -0.1"),
    ("optim.warmup_steps", -1, "at least 0, got -1"),
    ("optim.warmup_steps", 10**400, r"below 2\^63, got 1000"),
    ("optim.learning_rate", 10**400, "a number, got 1000"),
    ("steps", 10**400, r"below 2\^63, got 1000"),
    ("optim.weight_decay", -0.1, "at least 0, got -0.1"),
    ("optim.clip_norm", 0.0, "above 0, got 0.0"),
    ("recall.pairs", 0, "at least 1, got 0"),
    ("recall.pairs", 1000, "at most keys = "),
    ("recall.gap", -1, "at least 0, got -1"),
    ("recall.values", 1, "at least 2, got 1"),
    ("recall.keys", 250, "keys . values <= 255, got 250"),
]


@pytest.mark.parametrize("task", ["text", "recall"])
def test_defaults_are_in_range(task: Literal["text", "recall"]) -> None:
    DEFAULTS[task].check()
    assert DEFAULTS[task].task == task


@pytest.mark.parametrize(("name", "value", "message"), BAD, ids=lambda v: str(v)[:30])
def test_a_wrong_setting_is_refused_by_name(name: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        DEFAULTS["text"].replaced({name: value}).check()
    wrong = "dim" if name == "model.memory_heads" else name.rpartition(".")[2]
    assert str(caught.value).startswith(f"{wrong}: expected ")
