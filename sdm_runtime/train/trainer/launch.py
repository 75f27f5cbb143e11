"""What a launcher such as torchrun says to a process, by environment variables. Needs no torch."""

from __future__ import annotations

import os
from dataclasses import dataclass

from sdm_runtime.train.config import ConfigError
from sdm_runtime.train.shown import short

_MOST_PROCESSES = 2**20


@dataclass(frozen=True)
class Launch:
    """This process among those that were started together.

    Attributes:
        size: number of processes.
        rank: of this one.
        local_rank: of this one among those of its machine.
    """

    size: int = 1
    rank: int = 0
    local_rank: int = 0


def read_launch() -> Launch:
    """Return what the environment says; without WORLD_SIZE this process is alone.

    Raises:
        ConfigError: a variable is missing or out of range; the message names it.
    """
    size = _number("WORLD_SIZE", 1, _MOST_PROCESSES, 1)
    if size == 1:
        return Launch()
    rank = _number("RANK", 0, size - 1)
    if not os.environ.get("MASTER_ADDR", "").strip():
        raise ConfigError("MASTER_ADDR: expected where the process of rank 0 is, got none")
    _number("MASTER_PORT", 1, 65535)
    return Launch(size, rank, _number("LOCAL_RANK", 0, size - 1, 0))


def is_one_of_several() -> bool:
    """Return whether other processes are in the run; False where the environment names none."""
    try:
        return read_launch().size > 1
    except ConfigError:
        return False


def is_first() -> bool:
    """Return whether this process speaks for all."""
    return os.environ.get("RANK", "0") == "0" or not is_one_of_several()


def _number(name: str, least: int, most: int, default: int | None = None) -> int:
    text = os.environ.get(name)
    if text is None and default is not None:
        return default
    number = int(text) if text is not None and text.isascii() and text.isdigit() else -1
    if not least <= number <= most:
        shown = "none" if text is None else f"'{short(text)}'"
        raise ConfigError(f"{name}: expected a number within {least}..{most}, got {shown}")
    return number
