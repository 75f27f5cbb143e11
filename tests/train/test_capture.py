"""The seam of the captured step: warming up must leave no trace."""

from __future__ import annotations

import sys
import types
from typing import Any

import torch

from sdm_runtime.train.trainer.capture import captured, put_back
from sdm_runtime.train.trainer.progress import SilentProgress
from sdm_runtime.train.trainer.step import make_step


def snapshot(trainer) -> list[torch.Tensor]:
    tensors = [p.detach() for p in trainer.model.parameters()]
    for state in trainer.optimizer.state.values():
        tensors += [v for v in state.values() if torch.is_tensor(v)]
    return [t.clone() for t in tensors]


def test_warming_up_does_not_change_the_losses(new_small_trainer, monkeypatch) -> None:
    calls = []

    def capture_step(fn, *operands, warmup: int = 3, keep_graph: bool = False):
        for _ in range(warmup):
            calls.append(float(fn(*operands)))
        return fn

    stand_in: Any = types.ModuleType("sdm_runtime.graphs")
    stand_in.capture_step = capture_step
    monkeypatch.setitem(sys.modules, "sdm_runtime.graphs", stand_in)
    plain, warmed = new_small_trainer(), new_small_trainer()
    warmed.capture = True
    for trainer in (plain, warmed):
        trainer.run(3, SilentProgress())
    assert len(calls) == 3
    assert len(set(calls)) == 3
    assert warmed.history.losses == plain.history.losses


def test_put_back_restores_what_was_there(new_small_trainer) -> None:
    trainer = new_small_trainer()
    trainer.run(2, SilentProgress())
    before = snapshot(trainer)
    step = make_step(trainer.model, trainer.optimizer, 1.0)
    operands = trainer._operands(trainer.task.next_batch())
    with put_back(trainer.model, trainer.optimizer):
        step(*operands)
        assert not all(map(torch.equal, before, snapshot(trainer)))
    assert all(map(torch.equal, before, snapshot(trainer)))


def test_captured_is_what_capture_step_returns(new_small_trainer, monkeypatch) -> None:
    stand_in: Any = types.ModuleType("sdm_runtime.graphs")
    stand_in.capture_step = lambda fn, *operands, keep_graph: ("replay", keep_graph)
    monkeypatch.setitem(sys.modules, "sdm_runtime.graphs", stand_in)
    trainer = new_small_trainer()
    operands = trainer._operands(trainer.task.next_batch())
    inputs: tuple[Any, ...] = (lambda *_: None, trainer.model, trainer.optimizer, operands)
    given: list[Any] = [captured(*inputs), captured(*inputs, keep_graph=True)]
    assert given == [("replay", False), ("replay", True)]
