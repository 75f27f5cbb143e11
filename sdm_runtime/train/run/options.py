"""The options of ``sdm-train``: one annotated type each, with its help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sdm_runtime.train.config import DEFAULTS


def _setting(name: str, text: str, *flags: str) -> Any:
    """Return an option that overrides the setting ``name``; its help shows the tasks' defaults."""
    shown = {task: _default(config, name) for task, config in DEFAULTS.items()}
    alike = len(set(shown.values())) == 1
    defaults = (
        shown["text"]
        if alike
        else ", ".join(f"{value} for {task}" for task, value in shown.items())
    )
    return typer.Option(*flags, help=text, show_default=defaults)


def _default(config: Any, name: str) -> str:
    for part in name.split("."):
        config = getattr(config, part)
    return ",".join(map(str, config)) if isinstance(config, tuple) else str(config)


Files = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Text files, read as bytes",
        show_default="the .py files of Python's standard library",
    ),
]
TaskOption = Annotated[
    str,
    typer.Option(
        "--task",
        help="text: predict files' next bytes; recall: key-value recall, also to --resume one",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(help="Folder of the run's files", show_default="runs/TASK"),
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Continue the run in --out; bit for bit with as many --threads"),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start over where --out holds a run")]
CheckpointEvery = Annotated[int, typer.Option(min=1, help="Steps between checkpoints")]
StopAfter = Annotated[
    int | None,
    typer.Option(min=1, help="Stop with a checkpoint, status 130, when this many steps are done"),
]
Device = Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu, cuda or cuda:N")]
Threads = Annotated[
    int | None, typer.Option(min=1, max=1024, help="CPU threads", show_default="torch's")
]
Capture = Annotated[
    bool | None,
    typer.Option(
        "--capture/--no-capture",
        help="Replay the step as a CUDA graph",
        show_default="on a GPU with one process",
    ),
]

Steps = Annotated[
    int | None,
    _setting("steps", "Optimizer steps in all; more of them, with --resume, extend a finished run"),
]
BatchSize = Annotated[
    int | None, _setting("batch_size", "Sequences per step, all processes together", "--batch-size")
]
Length = Annotated[
    int | None, _setting("length", "Bytes per training sequence, at most the longest file's (text)")
]
EvalLength = Annotated[
    int | None, _setting("eval_length", "Bytes evaluated of each validation document (text)")
]
EvalEvery = Annotated[int | None, _setting("eval_every", "Steps between evaluations")]
ValidationFraction = Annotated[
    float | None, _setting("validation_fraction", "Share of files to validate on (text)")
]
Seed = Annotated[int | None, _setting("seed", "Seed of the weights and the sampler")]

Dim = Annotated[int | None, _setting("model.dim", "Width of the model")]
Blocks = Annotated[int | None, _setting("model.blocks", "Blocks of convolution and feed-forward")]
Kernel = Annotated[int | None, _setting("model.kernel", "Taps of each causal convolution")]
MemoryBlocks = Annotated[
    str | None,
    _setting("model.memory_blocks", "Blocks with a memory layer, e.g. 0,2; or none"),
]
MemoryHeads = Annotated[int | None, _setting("model.memory_heads", "Heads of a memory layer")]
Slots = Annotated[int | None, _setting("model.slots", "Bank rows per head, a square number")]
Writes = Annotated[int | None, _setting("model.writes", "Slots written per byte")]
Reads = Annotated[int | None, _setting("model.reads", "Slots read per byte")]
ChunkSize = Annotated[int | None, _setting("model.chunk_size", "Bytes per memory step, 16..256")]

LearningRate = Annotated[
    float | None, _setting("optim.learning_rate", "Peak learning rate", "--learning-rate", "--lr")
]
WarmupSteps = Annotated[int | None, _setting("optim.warmup_steps", "Steps of linear warm-up")]
WeightDecay = Annotated[
    float | None, _setting("optim.weight_decay", "Weight decay, of matrices but the memory")
]
ClipNorm = Annotated[float | None, _setting("optim.clip_norm", "Largest gradient norm")]

Pairs = Annotated[int | None, _setting("recall.pairs", "Key-value pairs of a sequence (recall)")]
Gap = Annotated[int | None, _setting("recall.gap", "Symbols between pairs and questions (recall)")]
Keys = Annotated[int | None, _setting("recall.keys", "Number of different keys (recall)")]
Values = Annotated[int | None, _setting("recall.values", "Number of different values (recall)")]
