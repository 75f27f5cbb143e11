"""The loop around the training step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from sdm_runtime.train.config import RunConfig
from sdm_runtime.train.data.sampler import IGNORED, Batch
from sdm_runtime.train.trainer.capture import captured
from sdm_runtime.train.trainer.distributed import World
from sdm_runtime.train.trainer.history import History
from sdm_runtime.train.trainer.optim import learning_rate, make_optimizer
from sdm_runtime.train.trainer.progress import Progress
from sdm_runtime.train.trainer.step import Step, lay_out_reductions, make_step


class TrainingError(RuntimeError):
    """Training cannot go on; the message says at which step and why."""


class Task(Protocol):
    """Where batches come from, and how a model is judged."""

    metric: str
    """What ``evaluate`` returns, with its unit."""

    def next_batch(self) -> Batch:
        """Return the next global batch, on the CPU."""

    def state(self) -> dict[str, Any]:
        """Return where the task stands, as plain data."""

    def restore(self, state: dict[str, Any]) -> None:
        """Go to where ``state`` was taken.

        Raises:
            ContentError: it is not a state of this task, which stays where it is.
        """

    def evaluate(self, model: nn.Module, device: torch.device) -> float:
        """Judge the model on a small part of what it is not trained on."""


class Trainer:
    """One model in training: everything that a checkpoint must hold."""

    def __init__(
        self,
        config: RunConfig,
        model: nn.Module,
        task: Task,
        world: World,
        *,
        capture: bool = False,
    ) -> None:
        """Put the model on the device and make its optimizer.

        Args:
            config: of the run.
            model: maps symbols [batch, length] to logits [batch, length, 256].
            task: gives batches and judges the model.
            world: the processes that share the work.
            capture: replay the step as a CUDA graph.
        """
        self.config, self.task, self.world, self.capture = config, task, world, capture
        self.model = model.to(world.device)
        self.optimizer = make_optimizer(self.model, config.optim, world.device)
        self.history = History()
        self.step = 0
        self._take_step: Step | None = None

    def run(
        self, until: int, progress: Progress, should_stop: Callable[[], bool] = lambda: False
    ) -> bool:
        """Train up to step ``until``, or until asked to stop between two steps.

        Args:
            until: number of steps done at the end.
            progress: told of every step and evaluation.
            should_stop: asked before each step. Where several processes train, one that is asked to
                stop takes the others with it, after the same step.

        Returns:
            Whether it was asked to stop; the same in every process.

        Raises:
            TrainingError: the loss is not finite.
        """
        stop = self.world.any(should_stop())
        while self.step < until and not stop:
            began = time.perf_counter()
            operands = self._operands(self.task.next_batch())
            part = self._stepper(operands)(*operands)
            loss, stop = self.world.sum(part, self.world.size > 1 and should_stop())
            self._record(loss, began, progress)
            if self.world.size == 1:
                stop = should_stop()
        return stop

    def _stepper(self, operands: tuple[Tensor, Tensor, Tensor, Tensor]) -> Step:
        if self._take_step is None:
            model = self.world.wrap(self.model)
            if self.world.size > 1:
                lay_out_reductions(model, operands)
            self._take_step = make_step(model, self.optimizer, self.config.optim.clip_norm)
            if self.capture:
                self._take_step = captured(self._take_step, self.model, self.optimizer, operands)
        return self._take_step

    def _operands(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        device = self.world.device
        predicted = int((batch.targets != IGNORED).sum())
        self.history.tokens += batch.inputs.numel()
        weight = torch.tensor(1.0 / predicted, device=device)
        rate = learning_rate(self.config.optim, self.step, self.config.steps)
        inputs, targets = (self.world.rows(part).to(device) for part in batch)
        return inputs, targets, weight, torch.tensor(rate, device=device)

    def _record(self, loss: float, began: float, progress: Progress) -> None:
        if not math.isfinite(loss):
            raise TrainingError(
                f"the loss is {loss} at step {self.step}; try a lower learning rate"
            )
        self.step += 1
        self.history.losses.append(loss)
        if self.world.is_main and self._evaluation_is_due():
            value = self.task.evaluate(self.model, self.world.device)
            self.history.evaluations.append((self.step, value))
            progress.message(f"step {self.step}: {self.task.metric} {value:.4f}")
        self.history.seconds += time.perf_counter() - began
        progress.update(self.step, self.history)

    def _evaluation_is_due(self) -> bool:
        return self.step % self.config.eval_every == 0 or self.step == self.config.steps
