"""What a run takes of memory at the least, against what there is: said before any work.

Bytes are counted from the settings alone, in Python's integers, so no size is too large to be
refused. Only what surely is alive at one time is counted: what is refused could not have run.
"""

from __future__ import annotations

import math
import os

from sdm_runtime.train.config import DEFAULTS, ConfigError, ModelConfig, RunConfig
from sdm_runtime.train.data.sampler import NUM_SYMBOLS
from sdm_runtime.train.free_memory import free_bytes, gib
from sdm_runtime.train.shown import short
from sdm_runtime.train.trainer.distributed import World

_FLOAT, _INTEGER = 4, 8  # bytes of a float32 and of an int64
# What grows with them; of those above their default the one to blame is found by trying.
_OF_MODEL = ("dim", "blocks", "kernel", "memory_heads", "slots")
_SIZES = (
    *("batch_size", "length", "eval_length", "recall.gap"),
    *(f"model.{name}" for name in _OF_MODEL),
)


def expect_room(config: RunConfig, world: World, longest: int, longest_validation: int) -> None:
    """Refuse sizes that do not fit into memory.

    Args:
        config: of the run.
        world: the processes that share it.
        longest: bytes of the longest training document (text).
        longest_validation: bytes of the longest validation document (text).

    Raises:
        ConfigError: names the setting, the bytes it takes and those that are free.
    """

    def needed(some: RunConfig) -> int:
        return least_bytes(some, world, longest, longest_validation)

    need, free = needed(config), free_bytes(world.device)
    if need <= free:
        return
    name = min(_raised(config), key=lambda name: needed(_with_default(config, name)))
    value = short(_setting(config, name))
    raise ConfigError(
        f"{name.rpartition('.')[2]}: expected a run that fits into memory, got {value}: it needs "
        f"about {gib(need)} GiB on {world.device.type}, {gib(free)} GiB are free"
    )


def least_bytes(config: RunConfig, world: World, longest: int, longest_validation: int) -> int:
    """Return the bytes that all processes on this machine take at once on a device, at the least.

    Of several GPUs each has its own memory, so there it is one process alone.
    """
    model, rows = config.model, config.batch_size // world.size
    on_cpu = world.device.type == "cpu"
    if config.task == "recall":
        length, evaluated = config.recall.length, 0
    else:
        length, evaluated = min(config.length, longest), min(config.eval_length, longest_validation)
    bank = model.slots * model.dim * _FLOAT
    banks = rows * bank * (len(model.memory_blocks) + 1 if model.memory_blocks else 0)
    step = rows * length * _activations(model) * _FLOAT + banks
    if on_cpu:  # the global batch, inputs and targets, is drawn there
        step += 2 * config.batch_size * length * _INTEGER
    evaluation = evaluated * max(10 * model.dim, 2 * 256) * _FLOAT
    weights = count_least_parameters(model) * _FLOAT
    # AdamW's two moments stay; gradients come as what the backward needs goes.
    least = 3 * weights + max(weights, step, evaluation)
    return least * (int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if on_cpu else 1)


def count_least_parameters(model: ModelConfig) -> int:
    """Return the number of the model's parameters; what counts little is left out."""
    dim = model.dim
    block = dim * (2 * dim * model.kernel + dim + 8 * dim)
    scores = model.memory_heads * 2 * math.isqrt(model.slots)
    memory = 2 * dim * scores + 2 * dim * dim + model.slots * dim
    return (NUM_SYMBOLS + 256) * dim + model.blocks * block + len(model.memory_blocks) * memory


def _activations(model: ModelConfig) -> int:
    """Return the numbers that a step keeps for its backward, for each symbol."""
    # Of the convolution its input, padded, its output of twice the width and the gated one; of the
    # feed-forward the normed input and two of four times the width; the stream before each.
    block = (1 + 2 + 1) + (1 + 4 + 4) + 2
    memory = 3  # the stream, the normed input and the values; what writes replace can be little
    scores = 4 * model.memory_heads * math.isqrt(model.slots) if model.memory_blocks else 0
    kept = (model.blocks * block + len(model.memory_blocks) * memory) * model.dim
    return kept + max(2 * 256, scores)  # the logits' and the scores' are not alive together


def _raised(config: RunConfig) -> list[str]:
    """Return the sizes above their default, or all of them where there is none."""
    default = DEFAULTS[config.task]
    above = [name for name in _SIZES if _setting(config, name) > _setting(default, name)]
    return above or list(_SIZES)


def _with_default(config: RunConfig, name: str) -> RunConfig:
    default = _setting(DEFAULTS[config.task], name)
    return config.replaced({name: min(_setting(config, name), default)})


def _setting(config: RunConfig, name: str) -> int:
    part, _, last = name.rpartition(".")
    return int(getattr(getattr(config, part) if part else config, last))
