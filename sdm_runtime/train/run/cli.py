"""The ``sdm-train`` command."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, TextIO, cast

import torch
import typer
from rich.console import Console

from sdm_runtime.commands.version_option import Version
from sdm_runtime.errors import CudaError
from sdm_runtime.machine.backends import check_profile_name
from sdm_runtime.machine.environment import switch
from sdm_runtime.train.checkpoints.checkpoint import CheckpointError
from sdm_runtime.train.config import DEFAULTS, ConfigError, TaskName, expect_own_settings
from sdm_runtime.train.data.corpus import DataError
from sdm_runtime.train.free_memory import is_out_of_memory
from sdm_runtime.train.run import options as opt
from sdm_runtime.train.run.interrupts import Stopped, stop_on_signal
from sdm_runtime.train.run.output import Output, open_standard_streams, settle, tell
from sdm_runtime.train.run.run_recall import MEMORY, run_recall
from sdm_runtime.train.run.run_text import CHECKPOINT, run_text
from sdm_runtime.train.run.session import Session, find_checkpoint, settle_config
from sdm_runtime.train.trainer.distributed import ElsewhereError, World, joined
from sdm_runtime.train.trainer.launch import is_first, is_one_of_several
from sdm_runtime.train.trainer.loop import TrainingError

_CALLERS_MISTAKES = (
    ConfigError,
    DataError,
    CheckpointError,
    TrainingError,
    CudaError,
    OSError,  # A file that cannot be written; it names the file.
)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def train(
    files: opt.Files = None,
    task: opt.TaskOption = "text",
    out: opt.Out = None,
    resume: opt.Resume = False,
    fresh: opt.Fresh = False,
    checkpoint_every: opt.CheckpointEvery = 100,
    stop_after: opt.StopAfter = None,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    capture: opt.Capture = None,
    steps: opt.Steps = None,
    batch_size: opt.BatchSize = None,
    length: opt.Length = None,
    eval_length: opt.EvalLength = None,
    eval_every: opt.EvalEvery = None,
    validation_fraction: opt.ValidationFraction = None,
    seed: opt.Seed = None,
    dim: opt.Dim = None,
    blocks: opt.Blocks = None,
    kernel: opt.Kernel = None,
    memory_blocks: opt.MemoryBlocks = None,
    memory_heads: opt.MemoryHeads = None,
    slots: opt.Slots = None,
    writes: opt.Writes = None,
    reads: opt.Reads = None,
    chunk_size: opt.ChunkSize = None,
    learning_rate: opt.LearningRate = None,
    warmup_steps: opt.WarmupSteps = None,
    weight_decay: opt.WeightDecay = None,
    clip_norm: opt.ClipNorm = None,
    pairs: opt.Pairs = None,
    gap: opt.Gap = None,
    keys: opt.Keys = None,
    values: opt.Values = None,
    version: Version = False,
) -> None:
    """Train a small byte-level model with sparse delta memory layers.

    The folder --out gets checkpoints, report.json, report.png, and the chain of the last backward.
    A run whose output cannot be written (a closed pipe, a full disk) goes on without it.

    Several processes share each batch: torchrun --nproc-per-node 2 -m sdm_runtime.train
    """
    given = {
        "steps": steps,
        "batch_size": batch_size,
        "length": length,
        "eval_length": eval_length,
        "eval_every": eval_every,
        "validation_fraction": validation_fraction,
        "seed": seed,
        "model.dim": dim,
        "model.blocks": blocks,
        "model.kernel": kernel,
        "model.memory_blocks": parse_blocks(memory_blocks),
        "model.memory_heads": memory_heads,
        "model.slots": slots,
        "model.writes": writes,
        "model.reads": reads,
        "model.chunk_size": chunk_size,
        "optim.learning_rate": learning_rate,
        "optim.warmup_steps": warmup_steps,
        "optim.weight_decay": weight_decay,
        "optim.clip_norm": clip_norm,
        "recall.pairs": pairs,
        "recall.gap": gap,
        "recall.keys": keys,
        "recall.values": values,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if task not in DEFAULTS:
        raise ConfigError(f"task: expected {' or '.join(DEFAULTS)}, got {task}")
    expect_own_settings(task, changes)
    if resume and fresh:
        raise ConfigError("fresh: expected without --resume, got both")
    try:
        switch("SDM_CHECK_INDICES")  # each step reads them, when much work has been done
        check_profile_name()
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if threads is not None:
        torch.set_num_threads(threads)
    with joined(device) as world, stop_on_signal(several=world.size > 1) as stop:
        if world.size == 1:
            stop.obey("stopped before a step was taken")
        session = Session(
            out=out or Path("runs", task),
            console=Console(file=cast(TextIO, Output(sys.stdout))),
            world=world,
            resume=resume,
            fresh=fresh,
            checkpoint_every=checkpoint_every,
            stop_after=stop_after,
            capture=decide_capture(capture, world),
            stop=stop,
        )
        _run(session, task, changes, files or [])


def _run(session: Session, task: TaskName, changes: dict[str, Any], files: list[Path]) -> None:
    name = MEMORY if task == "recall" else CHECKPOINT
    checkpoint = find_checkpoint(session, name, last=task == "text")
    start = DEFAULTS[task] if checkpoint is None else checkpoint.config
    if start.task != task:
        raise CheckpointError(
            f"{checkpoint and checkpoint.path}: a run of {start.task}, not {task}"
        )
    config = settle_config(session, start.replaced(changes), checkpoint)
    if task == "text":
        run_text(session, config, checkpoint, files)
    elif files:
        raise ConfigError(f"files: expected none for recall, got {len(files)}")
    else:
        run_recall(session, config, checkpoint)


def parse_blocks(text: str | None) -> list[int] | None:
    """Return the block numbers of a list like ``0,2``; of ``none``, an empty list."""
    if text is None or text == "none":
        return None if text is None else []
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise ConfigError(f"memory_blocks: expected numbers like 0,2 or none, got {text}") from None


def decide_capture(asked: bool | None, world: World) -> bool:
    """Return whether to capture the step: where possible, unless said otherwise.

    Raises:
        ConfigError: asked for where it cannot be.
    """
    possible = world.device.type == "cuda" and world.size == 1
    if asked and not possible:
        raise ConfigError(
            f"capture: expected one process on a CUDA device, got {world.size} on {world.device}"
        )
    return possible if asked is None else asked


def main() -> None:
    """Run the command; a mistake of the caller's ends it with one line and status 2."""
    open_standard_streams()
    status = _run_to_status()
    settle()
    if is_one_of_several():
        # gloo's threads drop the tensors of the last reduction when they come to it, and need the
        # interpreter for that: one that is being taken down would abort the process.
        os._exit(status)
    sys.exit(status)


def _run_to_status() -> int:
    try:
        app()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Stopped as stop:
        if is_first():  # all processes stop, one says so
            tell(f"sdm-train: {stop}")
        return 130
    except ElsewhereError:
        return 2
    except _CALLERS_MISTAKES as error:
        tell(f"sdm-train: error: {_reason(error)}")
        return 2
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        reason = str(error).partition("\n")[0] or "an allocation has failed"
        tell(
            f"sdm-train: error: out of memory ({reason}); smaller sizes, as --batch-size, take less"
        )
        return 2
    return 0


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)
