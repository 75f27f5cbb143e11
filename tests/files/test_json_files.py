"""JSON that anybody may have written: read, or refused with a reason."""

from __future__ import annotations

import json

import pytest

from sdm_runtime.files.json_files import expect, member, number, read_json


def refusal(tmp_path, content: bytes) -> str:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        read_json(tmp_path / "file")
    return str(raised.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value"),
        (b"[1, ", "Expecting value"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"\xff\xfe", "can't decode byte 0xff"),
        (b"[NaN]", "expected a number, got NaN"),
        (b"[Infinity]", "expected a number, got Infinity"),
        (b'{"a": -Infinity}', "expected a number, got -Infinity"),
        (b"[1e400]", "expected a number that a float can hold, got 1e400"),
        (b"-1" + b"0" * 400 + b".5", "expected a number that a float can hold, got -100"),
        (b"9" * 5000, "4300"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_refused(tmp_path, content, reason):
    message = refusal(tmp_path, content)
    assert reason in message
    assert len(message) < 200


def test_what_is_read(tmp_path):
    value = {"a": [1, -2.5, 1e308, True, None, "\u00e4", {"b": {}}]}
    (tmp_path / "file").write_text(json.dumps(value))
    assert read_json(tmp_path / "file") == value


def test_members_of_another_type_are_refused():
    data = {"whole": 3, "part": 2.5, "yes": True, "name": "n", "list": [[1]], "huge": 10**309}
    assert member(data, "whole", int) == 3
    assert (number(data, "whole"), number(data, "part")) == (3.0, 2.5)
    for whole in (2**63 - 1, 2**63, -(2**64), 10**308):
        given = number({"whole": whole}, "whole")
        assert isinstance(given, float)
        assert given == float(whole)
    assert member(data, "yes", bool) is True
    for call, message in [
        (lambda: member(data, "yes", int), "yes: expected an integer, got True"),
        (lambda: member(data, "part", int), "part: expected an integer, got 2.5"),
        (lambda: member(data, "none", str), "none: expected a string, got none"),
        (lambda: number(data, "yes"), "yes: expected a number, got True"),
        (lambda: number(data, "name"), "name: expected a number, got 'n'"),
        (
            lambda: number(data, "huge"),
            r"huge: expected a number that a float can hold, got 10{59}\.\.$",
        ),
        (lambda: member(data, "list", str), "list: expected a string, got a list"),
        (lambda: expect("file", [], dict), "file: expected an object, got a list"),
        (lambda: expect("file", "x" * 99, dict), r"got 'x{59}\.\.$"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
