"""Fixed-size little-endian records: the base of the generated mirror of the plan format."""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, ClassVar, Self


@dataclass(frozen=True)
class Record:
    """One record. Subclasses give the ``struct`` format and each member's byte span.

    An array of bytes or characters is one ``bytes`` value, any other array a tuple of integers.
    """

    FORMAT: ClassVar[str]
    SIZE: ClassVar[int]
    SPANS: ClassVar[dict[str, tuple[int, int]]]  # member: (byte offset, bytes)

    @classmethod
    def unpack(cls, data: bytes | bytearray | memoryview, at: int = 0) -> Self:
        """Read a record at byte ``at``. Raises ``struct.error`` when the data ends before it."""
        values = list(struct.unpack_from(cls.FORMAT, data, at))
        members: list[Any] = []
        for member in fields(cls):
            count = _tuple_length(str(member.type))
            members.append(tuple(values[:count]) if count else values[0])
            del values[: count or 1]
        return cls(*members)

    def pack(self) -> bytes:
        """The record's bytes. Raises ``struct.error`` for a value out of its member's range."""
        values: list[Any] = []
        for member in fields(self):
            value = getattr(self, member.name)
            values.extend(value if isinstance(value, tuple) else (value,))
        return struct.pack(self.FORMAT, *values)


def _tuple_length(annotation: str) -> int:
    """The number of integers in ``tuple[int, int]``; 0 for a single value."""
    return annotation.count("int") if annotation.startswith("tuple") else 0


def text(name: bytes) -> str:
    """The text of a zero-padded name; undecodable bytes stay visible as escapes."""
    return name.split(b"\0", 1)[0].decode("ascii", errors="backslashreplace")


def word(code: IntEnum) -> str:
    """The everyday word for a code: ``float32``, ``pointer``, ``read/write``."""
    return code.name.lower().replace("_", "/")
