"""Where a training step of `sdm-train` spends its time on the CPU.

    python tools/bench/train_profile.py [--task text|recall] [--steps 10] [--threads N]
                                         [--json OUT.json]

Steps of a run with the task's default settings, under torch's profiler after a warm-up. Every
event's own time goes to one part: what the innermost range around it says, or else its name. What
is inside of a matmul (its bias and that one's gradient) is the matmul's. The last line is what lies
outside the model's matmuls, the kernels and the optimizer.
"""

from __future__ import annotations

import argparse
import functools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from figures import Figure, save
from torch import nn
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function

from sdm_runtime.ops.chunks import chunk_kernels
from sdm_runtime.plan.chain import StepChain
from sdm_runtime.train.config import DEFAULTS, RunConfig
from sdm_runtime.train.data.corpus import load_corpus, standard_library_files
from sdm_runtime.train.tasks.recall import RecallTask
from sdm_runtime.train.tasks.text import TextTask
from sdm_runtime.train.trainer import loop
from sdm_runtime.train.trainer.distributed import World
from sdm_runtime.train.trainer.model import ByteModel
from sdm_runtime.train.trainer.progress import SilentProgress

STEP = "training step"
MATMULS, STEP_KERNELS, CHUNK_KERNELS = "model's matmuls", "step kernels", "chunk kernels"
OPTIMIZER, OPERATION = "optimizer", "operation, other"
COUNTED = (MATMULS, STEP_KERNELS, CHUNK_KERNELS, OPTIMIZER)
SELECTION, REST = "slot selection", "other"
MATMUL_NAMES = tuple(f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "conv"))
MATMUL_NAMES += ("AddmmBackward", "MmBackward", "BmmBackward", "ConvolutionBackward")
# Ranges that the profiler already has.
RANGES = {
    "WriteRead": OPERATION,
    "WriteReadBackward": OPERATION,
    "_ProductKeyTopK": SELECTION,
    "_ProductKeyTopKBackward": SELECTION,
    "Optimizer.step": OPTIMIZER,
    "Optimizer.zero_grad": OPTIMIZER,
}


def ranged(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with record_function(part):
            return function(*args, **kwargs)

    return run


def add_ranges() -> None:
    """Give the calls that torch's profiler cannot see into a range."""
    for name in ("run", "run_step"):
        if hasattr(StepChain, name):
            setattr(StepChain, name, ranged(STEP_KERNELS, getattr(StepChain, name)))
    chunk_kernels._launch = ranged(CHUNK_KERNELS, chunk_kernels._launch)
    nn.utils.clip_grad_norm_ = ranged(OPTIMIZER, nn.utils.clip_grad_norm_)


def part_of(event: FunctionEvent) -> str:
    """The part that an event's own time belongs to."""
    at: FunctionEvent | None = event
    is_matmul = False
    while at is not None:
        name = at.name.split("#")[0].removeprefix("autograd::engine::evaluate_function: ")
        is_matmul |= name.startswith(MATMUL_NAMES)
        if name in (STEP_KERNELS, CHUNK_KERNELS, OPTIMIZER):
            return name
        if name in RANGES:
            return RANGES[name]
        at = at.cpu_parent
    return MATMULS if is_matmul else REST


def measure(trainer: loop.Trainer, warmup: int, steps: int) -> tuple[Counter, Counter, float]:
    """Microseconds a step by part, by name within the parts that are not counted, and in all."""
    progress = SilentProgress()
    trainer.run(warmup, progress)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for step in range(warmup, warmup + steps):
            with record_function(STEP):
                trainer.run(step + 1, progress)
    parts: Counter = Counter()
    names: Counter = Counter()
    total = 0.0
    for event in profiler.events():
        if event.name == STEP:
            total += event.cpu_time_total / steps
        if not inside_step(event):
            continue
        part = part_of(event)
        own = event.self_cpu_time_total / steps
        parts[part] += own
        if part not in COUNTED:
            names[part, event.name] += own
    return parts, names, total


def inside_step(event: FunctionEvent) -> bool:
    at: FunctionEvent | None = event
    while at is not None and at.name != STEP:
        at = at.cpu_parent
    return at is not None


def figures_of(task: str, parts: Counter, total: float, outside: float) -> list[Figure]:
    """A step in all and by part, and the last line's share; one profiled run has no spread."""
    times = {"step": total, **parts}
    figures = [Figure(f"{task}: {name}", "us", us) for name, us in times.items()]
    return [*figures, Figure(f"{task}: outside matmuls, kernels and optimizer", "share", outside)]


def make_trainer(config: RunConfig) -> loop.Trainer:
    torch.manual_seed(config.seed)
    if config.task == "text":
        corpus = load_corpus(standard_library_files(), config.validation_fraction)
        task: loop.Task = TextTask(corpus, config)
    else:
        task = RecallTask(config)
    return loop.Trainer(config, ByteModel(config.model), task, World(0, 1, torch.device("cpu")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=sorted(DEFAULTS), default="text")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    # No evaluation on the way: it is no part of a step.
    config = DEFAULTS[options.task].replaced({"eval_every": 10**9})
    add_ranges()
    parts, names, total = measure(make_trainer(config), options.warmup, options.steps)

    print(f"{total / 1e3:.1f} ms a step on {options.threads} threads, torch {torch.__version__}")
    for part, own in parts.most_common():
        print(f"{own / total:7.1%} {own / 1e3:8.2f} ms  {part}")
        for (_, name), inner in [x for x in names.most_common() if x[0][0] == part][:8]:
            print(f"        {inner / 1e3:8.2f} ms    {name}")
    outside = 1 - sum(parts[part] for part in COUNTED) / total
    print(f"{outside:7.1%} outside the {', the '.join(COUNTED)}")
    if options.json:
        save(options.json, figures_of(options.task, parts, total, outside), cpu=True)


if __name__ == "__main__":
    main()
