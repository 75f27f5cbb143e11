"""The training step and loop."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
import torch

from sdm_runtime.train.config import OptimConfig
from sdm_runtime.train.data.sampler import IGNORED
from sdm_runtime.train.trainer.loop import TrainingError
from sdm_runtime.train.trainer.model import ByteModel, byte_costs
from sdm_runtime.train.trainer.optim import learning_rate, make_optimizer
from sdm_runtime.train.trainer.progress import SilentProgress

from .conftest import SMALL


def test_equal_seeds_give_equal_losses(new_small_trainer) -> None:
    def losses(seed: int) -> list[float]:
        trainer = new_small_trainer(dataclasses.replace(SMALL, seed=seed))
        trainer.run(6, SilentProgress())
        return trainer.history.losses

    assert losses(1) == losses(1)
    assert losses(1) != losses(2)


def test_loss_falls(new_small_trainer) -> None:
    trainer = new_small_trainer(dataclasses.replace(SMALL, steps=60))
    trainer.run(60, SilentProgress())
    assert trainer.history.losses[0] == pytest.approx(math.log(256), rel=0.1)
    assert trainer.history.losses[-1] < 0.7 * trainer.history.losses[0]
    assert [step for step, _ in trainer.history.evaluations] == list(range(3, 61, 3))


def test_loss_is_the_mean_over_predicted_bytes(new_small_trainer) -> None:
    trainer = new_small_trainer()
    batch = trainer.task.next_batch()
    batch.targets[0, 5:] = IGNORED
    kept = batch.targets != IGNORED
    want = byte_costs(trainer.model, *batch)[kept].mean().item()
    trainer.task.next_batch = lambda: batch
    trainer.run(1, SilentProgress())
    assert trainer.history.losses[0] == pytest.approx(want, rel=1e-6)
    assert trainer.history.tokens == batch.inputs.numel()


def test_stops_between_two_steps(new_small_trainer) -> None:
    trainer = new_small_trainer()
    trainer.run(6, SilentProgress(), lambda: trainer.step == 2)
    assert trainer.step == 2
    assert trainer.task.sampler.state.drawn == 2 * SMALL.batch_size


def test_a_loss_that_is_not_finite_is_an_error(new_small_trainer) -> None:
    trainer = new_small_trainer()
    trainer.model.readout.bias.data[0] = math.nan
    with pytest.raises(TrainingError, match="loss is nan at step 0"):
        trainer.run(1, SilentProgress())


def test_the_learning_rate_warms_up_and_falls() -> None:
    config = OptimConfig(learning_rate=1.0, warmup_steps=10)
    rates = [learning_rate(config, step, 110) for step in range(110)]
    assert rates[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert rates[10] == pytest.approx(1.0)
    assert rates[60] == pytest.approx(0.55)
    assert rates[-1] == pytest.approx(0.1, abs=1e-3)
    assert all(a > b for a, b in itertools.pairwise(rates[10:]))
    assert learning_rate(OptimConfig(warmup_steps=0), 0, 1) == OptimConfig().learning_rate


def test_the_optimizer_decays_one_group_alone() -> None:
    model = ByteModel(dataclasses.replace(SMALL.model, memory_blocks=(0,)))
    names = {id(p): name for name, p in model.named_parameters()}
    optimizer = make_optimizer(model, OptimConfig(weight_decay=0.3), torch.device("cpu"))
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.3, 0.0]
    decayed, kept = ({names[id(p)] for p in group["params"]} for group in optimizer.param_groups)
    assert decayed.isdisjoint(kept)
    assert decayed | kept == set(names.values())
    assert {"embedding.weight", "blocks.0.local.taps.weight"} <= decayed
    own = {f"blocks.0.memory.{name}" for name in ("A_log", "dt_bias", "memory")}
    assert own <= kept
    assert all(name.endswith("bias") or "norm" in name for name in kept - own)


def test_model_sees_its_local_window_and_no_future() -> None:
    torch.manual_seed(0)
    config = SMALL.model
    model = ByteModel(config)
    symbols = torch.randint(256, (1, 20))
    at = 10
    changed = symbols.clone()
    changed[0, at] = (symbols[0, at] + 1) % 256
    moved = (model(symbols) != model(changed)).any(-1)[0]
    assert moved.nonzero().flatten().tolist() == list(range(at, at + config.local_window))
