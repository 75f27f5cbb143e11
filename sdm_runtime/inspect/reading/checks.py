"""The checks that decoding is made of: a condition, a reason and the byte where it shows."""

from __future__ import annotations

import zlib
from enum import IntEnum
from typing import TypeVar

from sdm_runtime.format.plan_format import FORMAT_VERSION, OLDEST_READER, ChainHeader, PlanHeader
from sdm_runtime.inspect.reading.model import FileError

_MOST_STEPS = (1 << 31) - 1
_CodeT = TypeVar("_CodeT", bound=IntEnum)


def expect(condition: bool, reason: str, byte: int) -> None:
    """Raise FileError unless ``condition``."""
    if not condition:
        raise FileError(reason, byte)


def code(codes: type[_CodeT], value: int, what: str, byte: int) -> _CodeT:
    """``value`` as a member of ``codes``. Raises FileError for one that is unknown."""
    try:
        return codes(value)
    except ValueError:
        raise FileError(f"unknown {what} {value}", byte) from None


def check_name(name: bytes, what: str, byte: int, *, may_be_empty: bool = False) -> None:
    """Raise FileError unless ``name`` is zero-padded printable ASCII."""
    bare = name.split(b"\0", 1)[0]
    expect(name[-1] == 0, f"{what} is not terminated", byte)
    expect(may_be_empty or bool(bare), f"{what} is empty", byte)
    for i, char in enumerate(bare):
        expect(32 < char < 127, f"{what} holds a byte that is not printable ASCII", byte + i)
    padding = name[len(bare) :].strip(b"\0")
    expect(not padding, f"{what} is not zero-padded", byte + len(bare))


def check_seal(kind: type[PlanHeader] | type[ChainHeader], data: bytes, at: int) -> None:
    """Version, size, checksum and steps: what both kinds of header start with."""
    header = kind.unpack(data)
    byte = {name: at + span[0] for name, span in kind.SPANS.items()}
    expect(
        header.version >= 1 and header.oldest_reader <= FORMAT_VERSION,
        f"unknown version {header.version}, this reads version {FORMAT_VERSION}",
        byte["version"],
    )
    expect(
        header.total_bytes == len(data),
        f"truncated or padded: the header says {header.total_bytes} bytes, got {len(data)}",
        byte["total_bytes"],
    )
    begin = sum(kind.SPANS["checksum"])
    computed = zlib.crc32(data[begin:])
    expect(
        header.checksum == computed,
        f"damaged: checksum is {header.checksum:#010x}, the bytes give {computed:#010x}",
        byte["checksum"],
    )
    expect(
        (header.version, header.oldest_reader) == (FORMAT_VERSION, OLDEST_READER),
        f"version {header.version}/{header.oldest_reader}, "
        f"this reads {FORMAT_VERSION}/{OLDEST_READER}",
        byte["version"],
    )
    expect(
        header.header_bytes == kind.SIZE,
        f"header of {header.header_bytes} bytes, expected {kind.SIZE}",
        byte["header_bytes"],
    )
    expect(
        1 <= header.steps <= _MOST_STEPS,
        f"{header.steps} steps, expected 1..2^31-1",
        byte["steps"],
    )
