"""Checkpoint tensors of the right type and shape that are not laid out as a run writes them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sdm_runtime.train.checkpoints.checkpoint import (
    CheckpointError,
    load_checkpoint,
    restore,
    save_checkpoint,
)
from sdm_runtime.train.checkpoints.checks import ContentError, check_count_of_steps
from sdm_runtime.train.trainer.progress import SilentProgress

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "strides": lambda t: torch.zeros((1,) * t.dim()).expand(t.shape),
    "strides ": lambda t: t.flatten().repeat_interleave(2)[::2].view_as(t),
    "meta": lambda t: t.to("meta"),
    "requires_grad": lambda t: t.clone().requires_grad_(),
    "a negative view": torch._neg_view,
}
Values = dict[str, Any]


@pytest.fixture
def values(tmp_path: Path, new_small_trainer) -> Values:
    trainer = new_small_trainer()
    trainer.run(2, SilentProgress())
    save_checkpoint(tmp_path / "c.pt", trainer, ["a"], "digest")
    return torch.load(tmp_path / "c.pt", weights_only=True)


@pytest.fixture
def outcome(tmp_path: Path, new_small_trainer) -> Callable[[Values], str]:
    """Return a function that gives the message with which values are refused, or nothing."""
    trainer = new_small_trainer()

    def outcome(values: Values) -> str:
        torch.save(values, tmp_path / "c.pt")
        try:
            restore(trainer, load_checkpoint(tmp_path / "c.pt"))
        except CheckpointError as error:
            assert trainer.step == 0
            assert not trainer.optimizer.state
            return str(error).removeprefix(f"{tmp_path / 'c.pt'}: ")
        return ""

    return outcome


def holders(values: Values) -> dict[str, tuple[dict[str, Tensor], str]]:
    """Return where a weight, both of its moments and its count of steps are."""
    state = values["optimizer"]["state"][0]
    weight = next(name for name, tensor in values["model"].items() if tensor.dim() == 2)
    return {
        f"model.{weight}": (values["model"], weight),
        **{f"optimizer.state.0.{name}": (state, name) for name in ("exp_avg", "exp_avg_sq")},
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_another_layout_is_refused_by_name(values: Values, outcome, layout: str) -> None:
    for where in holders(values):
        changed = copy.deepcopy(values)
        inside, name = holders(changed)[where]
        inside[name] = LAYOUTS[layout](inside[name])
        message = outcome(changed)
        assert f"{where}: expected float32 [" in message
        assert f"contiguous on the CPU, got {layout.strip()}" in message
    assert outcome(values) == ""


def test_a_transposed_moment_is_refused(values: Values, outcome) -> None:
    for number, moments in values["optimizer"]["state"].items():
        if moments["exp_avg"].dim() == 2:
            moments["exp_avg"] = moments["exp_avg"].t().contiguous().t()
            assert f"optimizer.state.{number}.exp_avg: expected float32" in outcome(values)
            return
    pytest.fail("no matrix among the parameters")


def test_a_generators_state_is_on_the_cpu(values: Values, outcome) -> None:
    values["random"]["cpu"] = values["random"]["cpu"].to("meta")
    assert "random.cpu: expected a generator's state, got" in outcome(values)


@pytest.mark.parametrize("how", ["whole", "part"])
def test_tensors_that_share_memory_are_refused(values: Values, outcome, how: str) -> None:
    places = list(holders(values))
    for where in places:
        for other in places:
            if where == other:
                continue
            changed = copy.deepcopy(values)
            inside, name = holders(changed)[where]
            outside, twin = holders(changed)[other]
            count, shape = inside[name].numel(), inside[name].shape
            if how == "whole":
                if outside[twin].numel() < count:
                    continue
                inside[name] = outside[twin].flatten()[:count].view(shape)
            else:
                both = torch.cat([inside[name].flatten(), outside[twin].flatten()])
                inside[name] = both[:count].view(shape)
                outside[twin] = both[count:].view(outside[twin].shape)
            message = outcome(changed)
            assert "expected memory of its own, got that of " in message
            assert where in message
            assert other in message
    assert outcome(values) == ""


def test_the_optimizers_count_of_steps_is_the_runs(values: Values, outcome) -> None:
    for wrong in (
        torch.tensor(100.0),
        torch.tensor(1.0),
        torch.tensor(float("nan")),
        torch.tensor([2.0]),
        torch.tensor(2),
        torch.tensor(2.0, dtype=torch.float64),
        torch.tensor(2.0, device="meta"),
        2.0,
    ):
        for number in (0, max(values["optimizer"]["state"])):
            changed = copy.deepcopy(values)
            changed["optimizer"]["state"][number]["step"] = wrong
            wanted = f"optimizer.state.{number}.step: expected float32 [] of the file's 2 steps"
            assert wanted in outcome(changed)
    shared = copy.deepcopy(values)
    shared["optimizer"]["state"][1]["step"] = shared["optimizer"]["state"][0]["step"]
    wanted = (
        "optimizer.state.1.step: expected memory of its own, got that of optimizer.state.0.step"
    )
    assert wanted in outcome(shared)
    assert outcome(values) == ""


def test_float32_counts_no_further_than_it_can() -> None:
    for steps, most in ((2**24 - 1, 2**24 - 1), (2**24 + 5, 2**24)):
        check_count_of_steps("step", torch.tensor(float(most)), steps)
        with pytest.raises(ContentError, match="got float32 \\[\\] of "):
            check_count_of_steps("step", torch.tensor(float(most - 1)), steps)
