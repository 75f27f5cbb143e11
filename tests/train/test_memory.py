"""Sizes against memory: what cannot fit is refused, what fits is not."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Literal

import pytest
import torch

from sdm_runtime.train.config import DEFAULTS, ConfigError, RunConfig
from sdm_runtime.train.free_memory import free_bytes, gib, is_out_of_memory
from sdm_runtime.train.run import memory
from sdm_runtime.train.run.memory import count_least_parameters, expect_room, least_bytes
from sdm_runtime.train.trainer.distributed import World
from sdm_runtime.train.trainer.model import ByteModel, count_parameters

CPU = torch.device("cpu")
ALONE = World(0, 1, CPU)
LARGE = {"model.dim": 256, "batch_size": 4, "length": 1024}


def text(changes: dict[str, Any]) -> RunConfig:
    return DEFAULTS["text"].replaced(changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model.dim": 512, "model.kernel": 9, "model.blocks": 5, "model.memory_blocks": []},
        {"model.slots": 65536, "model.memory_heads": 4, "model.memory_blocks": [0, 2]},
    ],
    ids=str,
)
def test_parameters_are_counted(changes: dict[str, Any]) -> None:
    model = text(changes).model
    counted, there = count_least_parameters(model), count_parameters(ByteModel(model))
    assert 0.98 * there < counted <= there


TAKE_ONE_STEP = """
import json, resource, sys
from pathlib import Path
import torch
from sdm_runtime.train.config import RunConfig
from sdm_runtime.train.data.corpus import Corpus, from_bytes
from sdm_runtime.train.trainer.distributed import World
from sdm_runtime.train.trainer.loop import Trainer
from sdm_runtime.train.run.memory import least_bytes
from sdm_runtime.train.trainer.model import ByteModel
from sdm_runtime.train.trainer.progress import SilentProgress
from sdm_runtime.train.tasks.text import TextTask

def run(config):
    torch.manual_seed(0)
    world = World(0, 1, torch.device("cpu"))
    documents = from_bytes([("a", bytes(range(256)) * 40)])
    task = TextTask(Corpus(documents, documents), config)
    Trainer(config, ByteModel(config.model), task, world).run(2, SilentProgress())

torch.set_num_threads(1)
small = {"length": 64, "batch_size": 1, "model.dim": 16, "model.slots": 64, "eval_length": 64}
config = RunConfig.from_dict(json.loads(sys.argv[1]))
run(config.replaced(small))
before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
run(config)
# Not getrusage's ru_maxrss, which begins with what the process that started this one had.
status = Path("/proc/self/status").read_text()
after = int(status.split("VmHWM:")[1].split()[0]) * 1024
print(after - before)
"""


@pytest.mark.parametrize(
    "changes",
    [
        {**LARGE, "model.memory_blocks": []},
        {**LARGE, "model.slots": 65536},
        {**LARGE, "model.memory_blocks": [0, 1, 2], "model.blocks": 4},
        {**LARGE, "model.slots": 2**20, "batch_size": 1, "length": 256, "model.dim": 64},
    ],
    ids=["convolutions", "banks", "memories", "scores"],
)
def test_no_less_is_needed_in_fact(changes: dict[str, Any]) -> None:
    config = text(changes | {"eval_length": 64, "steps": 2})
    words = [sys.executable, "-c", TAKE_ONE_STEP, json.dumps(config.to_dict())]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    taken, least = int(done.stdout), least_bytes(config, ALONE, 10240, 10240)
    # Not more than is taken, or what would fit were refused; nor so little that it says nothing.
    assert 0.2 * taken < least <= taken


@pytest.mark.parametrize("task", ["text", "recall"])
def test_the_defaults_fit(task: Literal["text", "recall"], monkeypatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda _: 2**30)
    expect_room(DEFAULTS[task], ALONE, 10**6, 10**6)


@pytest.mark.parametrize(
    ("task", "changes", "name"),
    [
        ("text", {"batch_size": 10**12}, "batch_size"),
        ("text", {"length": 10**7}, "length"),
        ("text", {"eval_length": 10**8}, "eval_length"),
        ("text", {"model.dim": 10**9}, "dim"),
        ("text", {"model.blocks": 10**9}, "blocks"),
        ("text", {"model.kernel": 10**9}, "kernel"),
        ("text", {"model.slots": 10**12}, "slots"),
        ("text", {"model.slots": 10**12, "model.dim": 256}, "slots"),
        ("text", {"model.slots": 10**8, "model.dim": 10**8}, "dim"),
        ("text", {"batch_size": 10**400}, "batch_size"),
        ("recall", {"recall.gap": 10**12}, "gap"),
        ("recall", {"batch_size": 10**12}, "batch_size"),
    ],
    ids=str,
)
def test_the_setting_to_blame_is_named(
    task: Literal["text", "recall"], changes: dict[str, Any], name: str, monkeypatch
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda _: 2**36)
    config = DEFAULTS[task].replaced(changes)
    config.check()
    with pytest.raises(ConfigError) as caught:
        expect_room(config, ALONE, 10**9, 10**9)
    message = str(caught.value)
    assert message.startswith(f"{name}: expected a run that fits into memory, got ")
    assert message.endswith("GiB on cpu, 64.0 GiB are free")
    assert len(message) < 200


def test_what_no_document_has_is_not_counted(monkeypatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda _: 2**36)
    expect_room(text({"length": 10**7, "eval_length": 10**8}), ALONE, 50_000, 50_000)


def test_processes_share_a_machine(monkeypatch) -> None:
    config = text({"batch_size": 8})
    one = least_bytes(config, ALONE, 10**6, 0)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    two = least_bytes(config, World(0, 2, CPU), 10**6, 0)
    assert one < two < 2 * one  # the rows are shared, the weights are not
    gpu = least_bytes(config, World(0, 2, torch.device("cuda:0")), 10**6, 0)
    assert gpu < two / 2


def test_free_memory_is_that_of_this_machine() -> None:
    free = free_bytes(CPU)
    assert 2**26 < free < 2**50
    assert gib(3 * 2**29) == "1.5"
    assert gib(10**16) == "9,313,225"
    assert gib(10**400) == "more than 1,000,000,000"


def test_a_limit_of_the_process_counts() -> None:
    code = (
        "import resource, torch\n"
        "from sdm_runtime.train.free_memory import free_bytes\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**34, 2**34))\n"
        "print(free_bytes(torch.device('cpu')) <= 2**34)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


def test_failed_allocations_are_known() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50)
    assert is_out_of_memory(caught.value)
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError())
    assert not is_out_of_memory(RuntimeError("something else"))
