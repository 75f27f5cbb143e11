"""JSON files that anybody may have written. Needs no torch."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn, TypeVar

from sdm_runtime.files.reading import Source, read_file

_MOST_SHOWN = 60  # characters of a wrong value in a message

Value = TypeVar("Value")


def read_json(source: Source) -> Any:
    """The value in a file, of finite numbers.

    Raises:
        ValueError: It is no JSON: also for NaN and infinities, for numbers beyond a float's range,
            and for what is nested too deeply to be read.
        OSError: The file cannot be read, as :func:`sdm_runtime.files.reading.read_file` says.
    """
    text = read_file(source).decode("utf-8")
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"expected a number, got {name}")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"expected a number that a float can hold, got {text[:_MOST_SHOWN]}")
    return value


def expect(name: str, value: Any, kind: type[Value]) -> Value:
    """``value``, of this type: a bool does not count as a number. Raises ValueError."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{name}: expected {_WORDS[kind]}, got {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return _WORDS[type(value)]
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}.."


_WORDS: dict[type, str] = {
    bool: "true or false",
    dict: "an object",
    float: "a number",
    int: "an integer",
    list: "a list",
    str: "a string",
}


def member(data: dict[str, Any], name: str, kind: type[Value]) -> Value:
    """The member of an object, of this type. Raises ValueError."""
    if name not in data:
        raise ValueError(f"{name}: expected {_WORDS[kind]}, got none")
    return expect(name, data[name], kind)


def number(data: dict[str, Any], name: str) -> float:
    """The member of an object, an integer or a float, as a float. Raises ValueError."""
    value = data.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        return member(data, name, float)
    try:
        return float(value)
    except OverflowError:
        raise ValueError(
            f"{name}: expected a number that a float can hold, got {_shown(value)}"
        ) from None
