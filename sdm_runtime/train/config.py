"""What a training run is: every choice that its numbers depend on, checked, as plain data."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from math import inf, isqrt
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from sdm_runtime.train.shown import short

TaskName = Literal["text", "recall"]


class ConfigError(ValueError):
    """A setting is out of range or contradicts another; the message names it."""


@dataclass(frozen=True)
class ModelConfig:
    """Shape of the byte model.

    Attributes:
        dim: width of the residual stream.
        blocks: number of blocks, each a causal convolution and a feed-forward.
        kernel: taps of each convolution, in bytes.
        memory_blocks: which blocks (from 0) have a memory layer between the two.
        memory_heads: heads of a memory layer; each has its own bank.
        slots: bank rows per head; a square number.
        writes: slots written per byte.
        reads: slots read per byte.
        chunk_size: bytes per step of the memory operation.
    """

    dim: int = 128
    blocks: int = 3
    kernel: int = 4
    memory_blocks: tuple[int, ...] = (1,)
    memory_heads: int = 1
    slots: int = 1024
    writes: int = 16
    reads: int = 16
    chunk_size: int = 64

    @property
    def local_window(self) -> int:
        """Return how many bytes, the current one included, reach a position without memory."""
        return 1 + self.blocks * (self.kernel - 1)

    def check(self) -> None:
        """Raise ConfigError where a size is out of range."""
        for name in ("dim", "blocks", "kernel", "memory_heads", "slots", "writes", "reads"):
            _expect(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        _expect(
            self.dim % self.memory_heads == 0,
            "dim",
            f"a multiple of memory_heads = {self.memory_heads}",
            self.dim,
        )
        side = isqrt(self.slots)
        _expect(side * side == self.slots, "slots", "a square number", self.slots)
        for name in ("writes", "reads"):
            value = getattr(self, name)
            _expect(value <= min(256, self.slots), name, "at most slots and 256", value)
        _expect(16 <= self.chunk_size <= 256, "chunk_size", "within 16..256", self.chunk_size)
        for block in self.memory_blocks:
            _expect(0 <= block < self.blocks, "memory_blocks", f"below {self.blocks}", block)


@dataclass(frozen=True)
class OptimConfig:
    """AdamW and its schedule: linear warm-up, then a cosine down to a tenth.

    Attributes:
        learning_rate: the peak.
        warmup_steps: steps of the linear rise.
        weight_decay: of what `split_weight_decay` does not exempt, as it does biases and norms.
        betas: of AdamW.
        clip_norm: largest norm of the gradient of all parameters together.
    """

    learning_rate: float = 3e-3
    warmup_steps: int = 20
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    clip_norm: float = 1.0

    def check(self) -> None:
        """Raise ConfigError where a setting is out of range."""
        rate, decay = self.learning_rate, self.weight_decay
        _expect(0.0 < rate < inf, "learning_rate", "finite and above 0", rate)
        _expect(self.warmup_steps >= 0, "warmup_steps", "at least 0", self.warmup_steps)
        _expect_countable("warmup_steps", self.warmup_steps)
        _expect(0.0 <= decay < inf, "weight_decay", "finite and at least 0", decay)
        for beta in self.betas:
            _expect(0.0 <= beta < 1.0, "betas", "within [0, 1)", beta)
        _expect(self.clip_norm > 0.0, "clip_norm", "above 0", self.clip_norm)


@dataclass(frozen=True)
class RecallConfig:
    """Shape of the key-value recall task.

    Attributes:
        pairs: key-value pairs shown at the start of a sequence, and asked for at its end.
        gap: filler symbols between the last pair and the first question.
        keys: number of different keys.
        values: number of different values; chance is one in ``values``.
    """

    pairs: int = 8
    gap: int = 64
    keys: int = 16
    values: int = 16

    @property
    def length(self) -> int:
        """Return the length of a sequence in symbols."""
        return 4 * self.pairs + self.gap

    def check(self) -> None:
        """Raise ConfigError where a setting is out of range."""
        _expect(self.pairs >= 1, "pairs", "at least 1", self.pairs)
        _expect(self.gap >= 0, "gap", "at least 0", self.gap)
        _expect(self.values >= 2, "values", "at least 2", self.values)
        _expect(self.pairs <= self.keys, "pairs", f"at most keys = {self.keys}", self.pairs)
        _expect(self.keys + self.values <= 255, "keys", "keys + values <= 255", self.keys)


@dataclass(frozen=True)
class RunConfig:
    """A whole run. Two runs of equal configs on equal data give equal losses.

    Attributes:
        task: ``text`` or ``recall``.
        steps: optimizer steps.
        batch_size: sequences per step, over all processes together.
        length: bytes per training sequence (text).
        eval_length: bytes of each validation document that are evaluated (text).
        eval_every: steps between evaluations on a small part of the validation side.
        validation_fraction: share of the files on the validation side (text).
        seed: of the initial weights and of the sampler.
        model: see ModelConfig.
        optim: see OptimConfig.
        recall: see RecallConfig.
    """

    task: TaskName = "text"
    steps: int = 600
    batch_size: int = 4
    length: int = 1024
    eval_length: int = 8192
    eval_every: int = 100
    validation_fraction: float = 0.1
    seed: int = 0
    model: ModelConfig = ModelConfig()
    optim: OptimConfig = OptimConfig()
    recall: RecallConfig = RecallConfig()

    def check_ranges(self) -> None:
        """Raise ConfigError where a setting is out of range."""
        for name in ("steps", "batch_size", "length", "eval_length", "eval_every"):
            _expect(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        _expect_countable("steps", self.steps)
        fraction = self.validation_fraction
        _expect(0.0 < fraction < 1.0, "validation_fraction", "within (0, 1)", fraction)
        _expect(0 <= self.seed < 2**32, "seed", "within 0..2^32-1", self.seed)
        self.model.check()
        self.optim.check()
        self.recall.check()

    def check(self) -> None:
        """Raise ConfigError where a setting is out of range, or is not for the task."""
        self.check_ranges()
        if self.task == "recall":
            blocks, gap = self.model.memory_blocks, self.recall.gap
            _expect(bool(blocks), "memory_blocks", "at least one block for recall", "none")
            window = self.model.local_window
            _expect(gap >= window, "gap", f"at least the local window {window}", gap)

    def replaced(self, changes: dict[str, Any]) -> RunConfig:
        """Return the config with settings replaced, nested ones by names like ``model.dim``."""
        values = self.to_dict()
        for name, value in changes.items():
            *parts, last = name.split(".")
            inner = values
            for part in parts:
                inner = inner[part]
            if last not in inner:
                raise KeyError(name)
            inner[last] = value
        return RunConfig.from_dict(values)

    def to_dict(self) -> dict[str, Any]:
        """Return the config as plain data (nested dicts, numbers, strings, lists)."""
        return cast(dict[str, Any], _plain(dataclasses.asdict(self)))

    @staticmethod
    def from_dict(values: dict[str, Any]) -> RunConfig:
        """Return the config that ``to_dict`` gave.

        Raises:
            ConfigError: a setting is missing, one too many, or of another type.
        """
        return cast(RunConfig, _from_plain(RunConfig, values, "config"))


DEFAULTS: dict[TaskName, RunConfig] = {
    "text": RunConfig(),
    "recall": RunConfig(
        task="recall",
        steps=300,
        batch_size=64,
        eval_every=50,
        model=ModelConfig(
            dim=64, blocks=2, kernel=2, memory_blocks=(1,), slots=256, writes=32, reads=32
        ),
    ),
}
"""The settings of each task where none are given."""

_ONE_TASKS: dict[str, TaskName] = {
    "length": "text",
    "eval_length": "text",
    "validation_fraction": "text",
    **{f"recall.{field.name}": "recall" for field in dataclasses.fields(RecallConfig)},
}


def expect_own_settings(task: TaskName, changes: dict[str, Any]) -> None:
    """Raise ConfigError where a setting of the other task is given: nothing would follow it."""
    for name in changes:
        owner = _ONE_TASKS.get(name, task)
        _expect(owner == task, name.split(".")[-1], f"only with --task {owner}", f"--task {task}")


def differences(saved: RunConfig, given: RunConfig) -> list[str]:
    """Return one line for each setting in which two configs differ."""
    old, new = _flat(saved.to_dict()), _flat(given.to_dict())
    return [
        f"{name}: saved {old[name]}, given {new[name]}" for name in old if old[name] != new[name]
    ]


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= (
            _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
        )
    return flat


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _from_plain(kind: Any, value: Any, name: str) -> Any:
    """Return plain data as the type that a field is annotated with."""
    if dataclasses.is_dataclass(kind):
        types = get_type_hints(kind)
        _expect(isinstance(value, dict), name, "named settings", short(value))
        for inner in [*value, *types]:
            _expect(
                inner in types, f"{name}.{short(inner)}", "no such setting", short(value.get(inner))
            )
            _expect(inner in value, f"{name}.{inner}", "a setting of this name", "none")
        parts = {inner: _from_plain(types[inner], value[inner], inner) for inner in types}
        return cast(Any, kind)(**parts)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        _expect(
            type(value) is str and value in arguments, name, " or ".join(arguments), short(value)
        )
        return value
    if origin is tuple:
        _expect(isinstance(value, (list, tuple)), name, "a list", short(value))
        kinds = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        _expect(len(kinds) == len(value), name, f"{len(kinds)} numbers", short(value))
        return tuple(_from_plain(k, v, name) for k, v in zip(kinds, value, strict=True))
    if kind is float:
        fits = type(value) is int and abs(value) <= sys.float_info.max
        _expect(type(value) is float or fits, name, "a number", short(value))
        return float(value)
    assert kind is int
    _expect(type(value) is int, name, "an integer", short(value))
    return value


def _expect_countable(name: str, steps: int) -> None:
    # Rates and times are reckoned with floats, which have an end.
    _expect(steps < 2**63, name, "below 2^63", short(steps))


def _expect(holds: bool, name: str, expected: str, given: object) -> None:
    if not holds:
        raise ConfigError(f"{name}: expected {expected}, got {given}")
