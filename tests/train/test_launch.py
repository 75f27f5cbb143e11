"""The environment of ``sdm-train``: one line and status 2 where it makes no sense."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from sdm_runtime.train.config import ConfigError
from sdm_runtime.train.trainer import distributed
from sdm_runtime.train.trainer.launch import Launch, is_first, is_one_of_several, read_launch

from .commands import TEXT_SIZES

NAMES = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
TWO = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
BAD = [
    ({"WORLD_SIZE": "abc"}, "WORLD_SIZE: expected a number within 1..1048576, got 'abc'"),
    ({"WORLD_SIZE": " "}, "WORLD_SIZE: expected a number within 1..1048576, got ' '"),
    ({"WORLD_SIZE": ""}, "WORLD_SIZE: expected a number within 1..1048576, got ''"),
    ({"WORLD_SIZE": "0"}, "WORLD_SIZE: expected a number within 1..1048576, got '0'"),
    ({"WORLD_SIZE": "-2"}, "WORLD_SIZE: expected a number within 1..1048576, got '-2'"),
    ({"WORLD_SIZE": "2"}, "RANK: expected a number within 0..1, got none"),
    (TWO | {"RANK": "2"}, "RANK: expected a number within 0..1, got '2'"),
    (TWO | {"RANK": "x"}, "RANK: expected a number within 0..1, got 'x'"),
    ({"WORLD_SIZE": "2", "RANK": "0"}, "MASTER_ADDR: expected where the process of rank 0 is"),
    (TWO | {"MASTER_ADDR": " "}, "MASTER_ADDR: expected where the process of rank 0 is, got none"),
    (TWO | {"MASTER_PORT": "http"}, "MASTER_PORT: expected a number within 1..65535, got 'http'"),
    (TWO | {"LOCAL_RANK": "9"}, "LOCAL_RANK: expected a number within 0..1, got '9'"),
    ({"SDM_DEVICE_PROFILE": "modren"}, "SDM_DEVICE_PROFILE: expected modern, a100 or rtx, got 'mo"),
    ({"SDM_CHECK_INDICES": "maybe"}, "SDM_CHECK_INDICES: expected 1, true, yes or on; or 0, "),
]


@pytest.fixture(autouse=True)
def bare(monkeypatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def set_all(monkeypatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("variables", "message"),
    BAD,
    ids=lambda value: " ".join(map("=".join, value.items())) if isinstance(value, dict) else "",
)
def test_a_wrong_environment_gets_one_line(
    sdm_train, text_files: list[Path], monkeypatch, variables: dict[str, str], message: str
) -> None:
    set_all(monkeypatch, variables)
    done = sdm_train(*TEXT_SIZES, *text_files)
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"sdm-train: error: {message}")
    assert not Path("runs").exists()


def test_a_right_environment(sdm_train, text_files: list[Path], monkeypatch) -> None:
    assert (read_launch(), is_one_of_several(), is_first()) == (Launch(1, 0, 0), False, True)
    set_all(monkeypatch, TWO | {"LOCAL_RANK": "1"})
    assert (read_launch(), is_one_of_several(), is_first()) == (Launch(2, 1, 1), True, False)
    monkeypatch.setenv("RANK", "7")  # no such process: whoever reads it speaks
    assert (is_one_of_several(), is_first()) == (False, True)
    set_all(monkeypatch, {"WORLD_SIZE": "1", "RANK": "x", "SDM_CHECK_INDICES": "yes"})
    assert sdm_train(*TEXT_SIZES, *text_files).status == 0


def test_processes_that_do_not_meet_get_one_line(monkeypatch) -> None:
    with socket.socket() as taken:  # rank 0 is to listen there
        taken.bind(("localhost", 0))
        taken.listen()
        port = taken.getsockname()[1]
        set_all(monkeypatch, TWO | {"RANK": "0", "MASTER_PORT": str(port)})
        wanted = f"MASTER_ADDR: expected to meet 2 processes at localhost, port {port}, got "
        with pytest.raises(ConfigError, match=wanted) as caught, distributed.joined("cpu"):
            pytest.fail("joined")
    assert "\n" not in str(caught.value)
