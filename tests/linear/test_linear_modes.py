"""Whom a promise or a request around bf16_linear holds for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Thread

import pytest
import torch

from sdm_runtime.linear import bf16_linear, forced_tactic, static_weights
from sdm_runtime.linear.modes import Tactic, forced, weights_are_static

Mode = Callable[[], AbstractContextManager[None]]
MODES: dict[str, tuple[Mode, Callable[[], object], object, object]] = {
    "static_weights": (static_weights, weights_are_static, False, True),
    "forced_tactic": (lambda: forced_tactic(3, 2), forced, None, Tactic(3, 2)),
}


@pytest.mark.parametrize("name", MODES)
def test_a_task_that_waits_says_nothing_for_the_others(name: str) -> None:
    mode, asked, outside, inside = MODES[name]
    seen: dict[str, object] = {}

    async def promise(begun: asyncio.Event, end: asyncio.Event) -> None:
        with mode():
            begun.set()
            await end.wait()
            seen["its own"] = asked()
            await asyncio.create_task(child())
        seen["afterwards"] = asked()

    async def child() -> None:
        seen["a task of its own"] = asked()

    async def other() -> None:
        begun, end = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(promise(begun, end))
        await begun.wait()
        seen["another"] = asked()
        with mode():
            seen["another's own"] = asked()
        end.set()
        await task

    asyncio.run(other())
    assert seen == {
        "another": outside,
        "another's own": inside,
        "its own": inside,
        "a task of its own": inside,
        "afterwards": outside,
    }


@pytest.mark.parametrize("name", MODES)
def test_another_thread_has_promised_nothing(name: str) -> None:
    mode, asked, outside, inside = MODES[name]
    seen: list[object] = []
    with mode():
        thread = Thread(target=lambda: seen.append(asked()))
        thread.start()
        thread.join()
        assert asked() == inside
    assert seen == [outside]


def test_an_error_ends_it() -> None:
    with pytest.raises(KeyError), static_weights(), static_weights():
        raise KeyError
    assert not weights_are_static()


def test_a_graph_may_hold_the_promise() -> None:
    x, weight = torch.randn(2, 8).bfloat16(), torch.randn(4, 8).bfloat16()

    def step(x: torch.Tensor) -> torch.Tensor:
        with static_weights():
            return bf16_linear(x, weight)

    compiled = torch.compile(step, backend="aot_eager")
    for _ in range(2):
        assert torch.equal(compiled(x), step(x))
