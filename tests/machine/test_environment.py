"""Environment variables: a word that means something, or refused by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sdm_runtime.machine import backends as runtime
from sdm_runtime.machine.environment import expect_choice, switch

ROOT = Path(__file__).parents[2]
ON, OFF = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


@pytest.mark.parametrize("value", [*ON, *OFF, "TRUE", "True", "Off", "NO"])
def test_the_words_of_a_switch(monkeypatch, value):
    monkeypatch.setenv("SDM_SOME_SWITCH", value)
    assert switch("SDM_SOME_SWITCH") is (value.lower() in ON)


def test_without_the_variable_a_switch_is_off(monkeypatch):
    monkeypatch.delenv("SDM_SOME_SWITCH", raising=False)
    assert switch("SDM_SOME_SWITCH") is False


@pytest.mark.parametrize("value", ["2", "-1", "maybe", "enable", " ", " 1", "1.0", "tru", "None"])
def test_any_other_word_is_refused_by_name(monkeypatch, value):
    monkeypatch.setenv("SDM_SOME_SWITCH", value)
    message = f"SDM_SOME_SWITCH: expected 1, true, yes or on; or .*, got '{re.escape(value)}'"
    with pytest.raises(ValueError, match=message):
        switch("SDM_SOME_SWITCH")


def test_a_choice_is_one_of_its_words(monkeypatch):
    monkeypatch.delenv("SDM_SOME_CHOICE", raising=False)
    expect_choice("SDM_SOME_CHOICE", ("a", "b", "c"))
    for word in ("a", "b", "c"):
        monkeypatch.setenv("SDM_SOME_CHOICE", word)
        expect_choice("SDM_SOME_CHOICE", ("a", "b", "c"))
    for word in ("", "A", "d", "a "):
        monkeypatch.setenv("SDM_SOME_CHOICE", word)
        with pytest.raises(ValueError, match=f"SDM_SOME_CHOICE: expected a, b or c, got '{word}'"):
            expect_choice("SDM_SOME_CHOICE", ("a", "b", "c"))


def test_the_profiles_are_those_of_the_core():
    source = (ROOT / "csrc/plancap/cuda/device_profile.cpp").read_text()
    assert set(re.findall(r'\{"(\w+)", \d', source)) == set(runtime._PROFILES)
    assert "expected modern, a100 or rtx, got" in source


OWN_READING = re.compile(r"(?:environ\W|getenv\().{0,10}\"(SDM_\w+)\"")


def own_readings(texts: list[str]) -> set[str]:
    return {name for text in texts for name in OWN_READING.findall(text)}


def test_no_switch_is_read_in_another_way():
    texts = [
        path.read_text()
        for folder in ("csrc", "sdm_runtime")
        for path in ROOT.joinpath(folder).rglob("*")
        if path.suffix in {".py", ".cpp", ".h", ".cu", ".cuh"}
    ]
    assert own_readings(texts) == {"SDM_DEVICE_PROFILE"}  # a choice, which names what it expects
    controls = ['os.environ.get("SDM_A")', 'environ["SDM_B"]', 'getenv("SDM_C")', '"SDM_D"']
    assert own_readings(controls) == {"SDM_A", "SDM_B", "SDM_C"}
