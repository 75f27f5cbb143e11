#!/usr/bin/env python3
"""Writes sdm_runtime/format/plan_format.py, the Python mirror of csrc/plancap/format/plan_format.h.

The header is read line by line: one constant, enumerator or member per line, which is how it is
written. Offsets are computed with natural alignment and compared with the header's own asserts.
Run without arguments to write the mirror, with --check to fail when it is not current.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "csrc/plancap/format/plan_format.h"
MIRROR = ROOT / "sdm_runtime/format/plan_format.py"

# struct codes of the integer types; a char or uint8_t array is one bytes value.
CODES = {
    "uint8_t": "B",
    "int8_t": "b",
    "uint16_t": "H",
    "int16_t": "h",
    "uint32_t": "I",
    "int32_t": "i",
    "uint64_t": "Q",
    "int64_t": "q",
    "char": "s",
}
SIZES = {"B": 1, "b": 1, "H": 2, "h": 2, "I": 4, "i": 4, "Q": 8, "q": 8, "s": 1}


@dataclass
class Member:
    name: str
    code: str  # of one element
    count: int
    is_array: bool
    offset: int
    comment: str

    @property
    def size(self) -> int:
        return SIZES[self.code] * self.count

    @property
    def is_bytes(self) -> bool:
        return self.is_array and self.code in "sB"

    @property
    def format(self) -> str:
        if self.is_bytes:
            return f"{self.count}s"
        return f"{self.count}{self.code}" if self.is_array else self.code

    @property
    def annotation(self) -> str:
        if self.is_bytes:
            return "bytes"
        return f"tuple[{', '.join(['int'] * self.count)}]" if self.is_array else "int"


@dataclass
class Header:
    constants: list[tuple[str, str, str]] = field(default_factory=list)  # name, value, comment
    enums: dict[str, list[tuple[str, int, str]]] = field(default_factory=dict)
    structs: dict[str, list[Member]] = field(default_factory=dict)
    asserts: list[tuple[str, str, int]] = field(default_factory=list)  # struct, member or "", value


class FormatError(Exception):
    """The header is not written as this script reads it."""


def snake(name: str) -> str:
    """kReadWrite -> READ_WRITE, PlanHeader -> PLAN_HEADER."""
    bare = name.removeprefix("k") if re.match(r"k[A-Z]", name) else name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", "_", bare).upper()


def struct_size(members: list[Member]) -> int:
    return members[-1].offset + members[-1].size


def parse_member(line: str, members: list[Member], where: str) -> Member:
    match = re.fullmatch(r"(\w+) (\w+)(?:\[(\d+)\])?;(?:\s*// (.*))?", line)
    if not match or match[1] not in CODES:
        raise FormatError(f"{where}: expected one member of a fixed-size type, got {line!r}")
    code = CODES[match[1]]
    end = struct_size(members) if members else 0
    if end % SIZES[code]:
        raise FormatError(f"{where}: hidden padding before {match[2]}: spell it as reserved bytes")
    return Member(match[2], code, int(match[3] or 1), match[3] is not None, end, match[4] or "")


def parse(text: str) -> Header:
    header = Header()
    block: str | None = None  # the enum or struct whose lines are being read
    for number, raw in enumerate(text.splitlines(), 1):
        line, where = raw.strip(), f"{HEADER.name}:{number}"
        for struct, member, value in re.findall(
            r"(?:sizeof|offsetof)\((\w+)(?:, (\w+))?\) == (\d+)", line
        ):
            header.asserts.append((struct, member, int(value)))
        if not line or line.startswith(("//", "#", "static_assert", "namespace", "}  //")):
            continue
        if match := re.fullmatch(r"inline constexpr \w+ (k\w+) = (\w+);(?:\s*// (.*))?", line):
            header.constants.append((match[1], match[2], match[3] or ""))
        elif match := re.fullmatch(r"enum class (\w+) : uint8_t \{", line):
            block = match[1]
            header.enums[block] = []
        elif match := re.fullmatch(r"struct (\w+) \{", line):
            block = match[1]
            header.structs[block] = []
        elif line == "};":
            check_tail(block, header.structs.get(block or "", []))
            block = None
        elif block in header.enums:
            match = re.fullmatch(r"(k\w+) = (\d+),(?:\s*// (.*))?", line)
            if not match:
                raise FormatError(f"{where}: expected `kName = value,`, got {line!r}")
            header.enums[block].append((match[1], int(match[2]), match[3] or ""))
        elif block in header.structs:
            members = header.structs[block]
            members.append(parse_member(line, members, where))
        else:
            raise FormatError(f"{where}: not understood: {line!r}")
    check_asserts(header)
    return header


def check_tail(name: str | None, members: list[Member]) -> None:
    alignment = max((SIZES[member.code] for member in members), default=1)
    if members and struct_size(members) % alignment:
        raise FormatError(f"{name}: hidden padding at its end: spell it as reserved bytes")


def check_asserts(header: Header) -> None:
    """The offsets computed here are those that the compiler asserts."""
    for struct, name, value in header.asserts:
        members = header.structs[struct]
        offsets = {member.name: member.offset for member in members}
        computed = offsets[name] if name else struct_size(members)
        if computed != value:
            raise FormatError(f"{struct}.{name or 'size'}: asserted {value}, computed {computed}")
    unsized = set(header.structs) - {struct for struct, name, _ in header.asserts if not name}
    if unsized:
        raise FormatError(f"no sizeof assert for {', '.join(sorted(unsized))}")


def trailing(comment: str) -> str:
    return f"  # {comment}" if comment else ""


def render_struct(name: str, members: list[Member]) -> list[str]:
    lines = ["@dataclass(frozen=True)", f"class {name}(Record):"]
    lines.append(f'    """{struct_size(members)} bytes."""\n')
    lines.append(f'    FORMAT: ClassVar[str] = "<{"".join(member.format for member in members)}"')
    lines.append(f"    SIZE: ClassVar[int] = {struct_size(members)}")
    lines.append("    SPANS: ClassVar[dict[str, tuple[int, int]]] = {")
    lines += [f'        "{m.name}": ({m.offset}, {m.size}),' for m in members]
    lines.append("    }\n")
    lines += [f"    {m.name}: {m.annotation}{trailing(m.comment)}" for m in members]
    return [*lines, "", ""]


def render(header: Header) -> str:
    lines = [
        '"""The wire format of plans and chains: constants, enums and record layouts.',
        "",
        "Generated by tools/gen/plan_format.py from plan_format.h: do not edit.",
        "Imports neither torch nor the extension, so that plans can be read anywhere.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from dataclasses import dataclass",
        "from enum import IntEnum",
        "from typing import ClassVar, Final",
        "",
        "from sdm_runtime.format.records import Record",
        "",
    ]
    for name, value, comment in header.constants:
        literal = value.lower() if value.startswith("0x") else value
        digits = "0x" + literal[2:].upper() if literal.startswith("0x") else literal
        lines.append(f"{snake(name)}: Final = {digits}{trailing(comment)}")
    lines += ["", ""]
    for name, values in header.enums.items():
        lines += [f"class {name}(IntEnum):", f'    """Codes of {name}, one byte."""\n']
        lines += [
            f"    {snake(key)} = {value}{trailing(comment)}" for key, value, comment in values
        ]
        lines += ["", ""]
    for name, members in header.structs.items():
        lines += render_struct(name, members)
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--check", action="store_true", help="fail when the mirror is not current")
    check = options.parse_args().check
    text = render(parse(HEADER.read_text()))
    if not check:
        MIRROR.write_text(text)
        return 0
    if MIRROR.read_text() == text:
        return 0
    name = MIRROR.relative_to(ROOT)
    print(f"{name} is not current: run tools/gen/plan_format.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
