"""Reads compiled device code (PTX) for what programmatic dependent launch relies on.

A kernel that is launched early may, before its `griddepcontrol.wait`, only read data that nothing
in flight writes. What can be seen in the code, on every path from an entry's start:

- `griddepcontrol.launch_dependents` comes after a wait, else completion is not transitive along a
  chain of kernels;
- nothing is written to global memory before the wait;
- there is no non-coherent load (`ld.global.nc`) in an entry that waits: the compiler may move one
  ahead of the wait, and its cache is not told of the writes that the wait makes visible.

An entry without a wait is fine, as long as it is never launched early: `waits` says which it is.

    python tools/dev/scan_device_code.py FILE.ptx...     # prints the facts; 1 if a rule is broken
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ENTRY = re.compile(r"\.entry\s+([\w$]+)")
LABEL = re.compile(r"^([$\w]+):$")
JUMP = re.compile(r"\b(?:bra|bra\.uni)\s+([$\w]+)")
JUMP_TABLE = re.compile(r"\bbrx\.idx(?:\.uni)?\s+[^,]+,\s*([$\w]+)")
TARGETS = re.compile(r"^([$\w]+):\s*\.branchtargets\s+(.*)$")
# An instruction's name with its modifiers, behind its predicate.
NAME = re.compile(r"^(?:@!?%\w+\s+)?([a-z]\w*(?:\.[\w:]+)*)")
WRITERS = ("st", "red", "atom", "cp")
OTHER_SPACES = {"shared", "local", "param"}


def writes_global(text: str) -> bool:
    """Whether an instruction may write global memory; one without a state space may."""
    match = NAME.match(text)
    if not match:
        return False
    name, *modifiers = match.group(1).split(".")
    spaces = [m.split("::")[0] for m in modifiers]
    if name == "cp":  # a copy names where it writes first; cp.async.commit_group names nothing
        named = [s for s in spaces if s in {"shared", "global"}]
        return named[:1] == ["global"] and "prefetch" not in modifiers
    return name in WRITERS and not OTHER_SPACES & set(spaces)


def waits(text: str) -> bool:
    """Whether an instruction is a wait that every thread makes."""
    return text.startswith("griddepcontrol.wait")


@dataclass
class Facts:
    """What was seen in one entry."""

    waits: bool = False
    triggers: bool = False
    noncoherent_loads: int = 0
    broken: list[str] = field(default_factory=list)  # the rules that it breaks, in words


@dataclass
class Block:
    """Instructions that run one after the other, and the labels that may follow."""

    label: str
    instructions: list[str] = field(default_factory=list)
    next_labels: list[str] = field(default_factory=list)
    falls_through: bool = True


def entry_bodies(ptx: str) -> Iterator[tuple[str, list[str]]]:
    """Every entry's name and statements, without comments and declarations of its own scope."""
    ptx = re.sub(r"/\*.*?\*/", "", re.sub(r"//[^\n]*", "", ptx), flags=re.S)
    for match in ENTRY.finditer(ptx):
        start = ptx.index("{", ptx.index(")", match.end()))
        depth, end = 0, start
        for end in range(start, len(ptx)):
            depth += {"{": 1, "}": -1}.get(ptx[end], 0)
            if depth == 0:
                break
        yield match.group(1), statements(ptx[start + 1 : end])


def statements(body: str) -> list[str]:
    """One statement or label a string; vector braces stay inside their statement."""
    found = []
    for line in body.split("\n"):
        text = line.strip()
        label = re.match(r"^([$\w]+:)(?!:)\s*(.*)$", text)
        if label and not TARGETS.match(text):
            found.append(label.group(1))
            text = label.group(2)
        found += [part.strip() for part in text.split(";") if part.strip() not in ("", "{", "}")]
    return found


def blocks_of(body: list[str]) -> list[Block]:
    """The entry's blocks in order; the first is its start."""
    tables = {m.group(1): m.group(2) for m in map(TARGETS.match, body) if m}
    blocks = [Block("")]
    for text in body:
        if label := LABEL.match(text):
            blocks.append(Block(label.group(1)))
            continue
        if not blocks[-1].falls_through:  # code after an unconditional jump, before any label
            blocks.append(Block(""))
        block = blocks[-1]
        block.instructions.append(text)
        predicated = text.startswith("@")
        targets = JUMP.findall(text)
        for table in JUMP_TABLE.findall(text):
            targets += re.findall(r"[$\w]+", tables.get(table, ""))
        block.next_labels += targets
        if targets and predicated:
            blocks.append(Block(""))
        elif targets or (not predicated and re.match(r"(?:ret|exit|trap)\b", text)):
            block.falls_through = False
    return blocks


def waited_at_start(blocks: list[Block]) -> list[bool]:
    """Whether every path to a block has passed a wait. An unreachable block counts as if."""
    at = {block.label: i for i, block in enumerate(blocks) if block.label}
    waited = [True] * len(blocks)
    waited[0] = False
    changed = True
    while changed:
        changed = False
        for i, block in enumerate(blocks):
            after = waited[i] or any(map(waits, block.instructions))
            follow = [at[label] for label in block.next_labels]
            if block.falls_through and i + 1 < len(blocks):
                follow.append(i + 1)
            for j in follow:
                if waited[j] and not after:
                    waited[j] = False
                    changed = True
    return waited


def scan_entry(body: list[str]) -> Facts:
    """The facts of one entry."""
    facts = Facts()
    facts.waits = any(map(waits, body))
    facts.triggers = any("griddepcontrol.launch_dependents" in text for text in body)
    facts.noncoherent_loads = sum("ld.global.nc" in text for text in body)
    if facts.triggers and not facts.waits:
        facts.broken.append("starts its dependents without a wait of its own")
    if not facts.waits:
        return facts
    if facts.noncoherent_loads:
        facts.broken.append(f"has {facts.noncoherent_loads} non-coherent loads beside its wait")
    blocks = blocks_of(body)
    for block, waited in zip(blocks, waited_at_start(blocks), strict=True):
        for text in block.instructions:
            waited = waited or waits(text)
            if waited:
                continue
            if "griddepcontrol.launch_dependents" in text:
                facts.broken.append("may start its dependents before its own wait")
            elif writes_global(text):
                facts.broken.append(f"may write global memory before its wait: {text}")
    return facts


def scan_ptx(ptx: str) -> dict[str, Facts]:
    """The facts of every entry in a PTX text."""
    return {name: scan_entry(body) for name, body in entry_bodies(ptx)}


def main(paths: list[str]) -> int:
    broken = 0
    for path in paths:
        for name, facts in scan_ptx(Path(path).read_text()).items():
            broken += len(facts.broken)
            state = "; ".join(facts.broken) or "ok"
            print(f"{path}: {name}: waits={facts.waits} triggers={facts.triggers}: {state}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
