"""Which nodes of a captured graph are a chain's launches, and where they differ from it.

Separate from the walking, so that it can be used (and tested) where there is no GPU.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import takewhile

from sdm_runtime.format.plan_format import FieldType
from sdm_runtime.inspect.captured.model import CapturedGraph, GraphNode
from sdm_runtime.inspect.reading.model import ChainModel, PlanModel
from sdm_runtime.inspect.reading.parameters import patched_block
from sdm_runtime.inspect.reading.words import dims, plural
from sdm_runtime.inspect.verify.early import held_back as held_back_by_name

_LOOK_AHEAD = 64  # launches that may be missing before a node is called a stranger


@dataclass(frozen=True)
class Launch:
    """What the chain says of one launch."""

    step: int
    index: int  # of the plan
    plan: PlanModel

    def __str__(self) -> str:
        """For messages."""
        return f"step {self.step} plan {self.index} ({self.plan.kernel})"


@dataclass(frozen=True)
class Matched:
    """A node that is a launch of the chain."""

    node: int
    launch: Launch


@dataclass(frozen=True)
class Run:
    """One run of the chain in the graph, or a part of one."""

    matched: tuple[Matched, ...]
    complete: bool
    programmatic_edges: int
    full_edges: int


@dataclass(frozen=True)
class Match:
    """The chain's runs found in a graph, and every difference."""

    runs: tuple[Run, ...]
    differences: tuple[str, ...]

    @property
    def nodes(self) -> int:
        """Nodes that are launches of the chain."""
        return sum(len(run.matched) for run in self.runs)


def match(
    graph: CapturedGraph, chain: ChainModel, held_back: Collection[int] | None = None
) -> Match:
    """Find the chain's launches among the graph's kernel nodes, in the order of their dependencies.

    Library steps are left out: nothing says which kernels a library launches. Addresses are
    not compared with the file, which has none: an operand must be at one address in all of a run.
    Between runs, a stretch of launches of one kernel alone belongs to another chain that shares it.
    Full edges are right for ``held_back``: plans, by index, that ask for an early start and do not
    get it. Without it the operands' names say which (``verify.early``).
    """
    launches = [
        Launch(step, index, plan)
        for step in chain.run_order
        for index, plan in enumerate(chain.plans)
        if not plan.empty and not plan.library
    ]
    names = {launch.plan.entry for launch in launches}
    ours = [i for i in graph.order if graph.nodes[i].kind == "kernel"]
    ours = [i for i in ours if graph.nodes[i].name in names]
    if not launches:
        return Match((), ())
    if held_back is None:
        held_back = held_back_by_name(chain)
    return _Matcher(graph, launches, frozenset(held_back)).match(ours)


class _Matcher:
    def __init__(self, graph: CapturedGraph, launches: list[Launch], held_back: frozenset[int]):
        self._graph = graph
        self._launches = launches
        self._held_back = held_back
        self._runs: list[Run] = []
        self._differences: list[str] = []
        self._current: list[Matched] = []
        self._next = 0  # the launch that comes next

    def match(self, nodes: list[int]) -> Match:
        position = 0
        while position < len(nodes):
            if not self._current:
                position += self._of_another_chain(nodes[position:])
            if position < len(nodes):
                self._take(nodes[position])
            position += 1
        if self._current:
            self._missing(self._next, len(self._launches))
            self._finish(complete=False)
        return Match(tuple(self._runs), tuple(self._differences))

    def _of_another_chain(self, nodes: list[int]) -> int:
        """How many nodes, from the first, come before a run (or behind the last) and are of none.

        One kernel's launches alone, up to the chain's first launch or the graph's end.
        """
        first = self._launches[0]
        name = self._graph.nodes[nodes[0]].name
        if name == first.plan.entry:
            return 0
        count = sum(1 for _ in takewhile(lambda node: self._graph.nodes[node].name == name, nodes))
        at_end = count == len(nodes)
        begins = bool(self._runs) if at_end else not self._wrong(nodes[count], first)
        return count if begins else 0

    def _take(self, node: int) -> None:
        """Match a node with the next launch, or with a later one, or with none."""
        for ahead in range(min(_LOOK_AHEAD, len(self._launches) - self._next)):
            launch = self._launches[self._next + ahead]
            if not self._wrong(node, launch):
                self._missing(self._next, self._next + ahead)
                self._accept(node, self._next + ahead)
                return
        launch = self._launches[self._next]
        wrong = self._wrong(node, launch)
        if self._graph.nodes[node].name == launch.plan.entry:  # the launch, with other contents
            self._differences.append(f"node {node} is {launch}, but {'; '.join(wrong)}")
            self._accept(node, self._next)
        else:
            name = self._graph.nodes[node].name
            self._differences.append(f"node {node} ({name}) is not a launch expected at {launch}")

    def _accept(self, node: int, position: int) -> None:
        self._current.append(Matched(node, self._launches[position]))
        self._next = position + 1
        if self._next == len(self._launches):
            self._finish(complete=len(self._current) == len(self._launches))

    def _missing(self, begin: int, end: int) -> None:
        for launch in self._launches[begin : min(end, begin + 3)]:
            self._differences.append(f"{launch} has no node")
        if end - begin > 3:
            self._differences.append(f"{end - begin - 3} more launches have no node")

    def _finish(self, complete: bool) -> None:
        matched = tuple(self._current)
        programmatic, full, wrong_edges = _edges(self._graph, matched, self._held_back)
        self._runs.append(Run(matched, complete, programmatic, full))
        self._differences += wrong_edges
        self._differences += _moved_operands(self._graph, matched)
        self._current, self._next = [], 0

    def _wrong(self, node: int, launch: Launch) -> list[str]:
        """How a node differs from a launch; empty when it does not."""
        found = self._graph.nodes[node]
        header = launch.plan.header
        if found.name != launch.plan.entry:
            return [f"kernel {found.name}, expected {launch.plan.entry}"]
        wrong = []
        for what, given, expected in (
            ("grid", found.grid, header.grid),
            ("block", found.block, header.block),
        ):
            if given != expected:
                wrong.append(f"{what} {dims(given)}, expected {dims(expected)}")
        if found.shared_bytes != header.shared_bytes:
            wrong.append(
                f"{found.shared_bytes} bytes of shared memory, expected {header.shared_bytes}"
            )
        if found.params is not None:
            block = patched_block(launch.plan, launch.step)
            wrong += _wrong_fields(launch.plan, found.params, block)
        return wrong


def _wrong_fields(plan: PlanModel, given: bytes, expected: bytes) -> Iterator[str]:
    if len(given) != len(expected):
        yield f"{len(given)} bytes of parameters, expected {len(expected)}"
        return
    for field in plan.fields:
        if field.type in (FieldType.POINTER, FieldType.BYTES):
            continue  # addresses, and what is derived from addresses
        span = slice(field.offset, field.offset + field.size)
        if given[span] != expected[span]:
            numbers = [
                int.from_bytes(block[span], "little", signed=True) for block in (given, expected)
            ]
            yield f"{field.name} = {numbers[0]}, expected {numbers[1]}"


def _edges(
    graph: CapturedGraph, matched: tuple[Matched, ...], held_back: frozenset[int]
) -> tuple[int, int, list[str]]:
    """Edges within a run by type, and the kernels whose edges are not of the type asked for."""
    mine = {entry.node for entry in matched}
    programmatic = full = 0
    wrong: dict[tuple[str, bool], list[Launch]] = {}
    first = matched[0].node if matched else None
    for entry in matched:
        inside = [edge for edge in graph.incoming.get(entry.node, ()) if edge.before in mine]
        programmatic += sum(edge.programmatic for edge in inside)
        full += sum(not edge.programmatic for edge in inside)
        early = any(edge.programmatic for edge in inside)
        launch = entry.launch
        asked_early = launch.plan.programmatic and launch.index not in held_back
        if entry.node != first and inside and early != asked_early:
            wrong.setdefault((entry.launch.plan.kernel, early), []).append(entry.launch)
    messages = []
    for (kernel, early), launches in wrong.items():
        is_now, asked = ("programmatic", "full") if early else ("full", "programmatic")
        messages.append(
            f"{kernel}: {plural(len(launches), 'launch')} of it (first {launches[0]}) "
            f"{'has' if len(launches) == 1 else 'have'} {is_now} edges where the chain asks for "
            f"{asked} ones" + ("" if early else ": PDL is off for it")
        )
    return programmatic, full, messages


def _moved_operands(graph: CapturedGraph, matched: tuple[Matched, ...]) -> list[str]:
    """Operands that are at two addresses within one run."""
    seen: dict[str, tuple[int, Launch]] = {}
    messages: dict[str, str] = {}
    for entry in matched:
        params = graph.nodes[entry.node].params
        if params is None or len(params) != entry.launch.plan.header.param_bytes:
            continue  # not known, or reported as another block already
        for name, address in _addresses(entry.launch, params):
            first = seen.setdefault(name, (address, entry.launch))
            if first[0] != address and name not in messages:
                messages[name] = (
                    f"operand '{name}' is at {address:#x} in {entry.launch}, at {first[0]:#x} in "
                    f"{first[1]}: two tensors under one name"
                )
    return list(messages.values())


def _addresses(launch: Launch, params: bytes) -> Iterator[tuple[str, int]]:
    """The operands' own addresses, from pointers that offsets and patches have moved."""
    for operand in launch.plan.operands:
        field = launch.plan.field(operand.field)
        assert field is not None  # decoding checked it
        pointer = int.from_bytes(params[field.offset : field.offset + 8], "little")
        patch = launch.plan.patch_of.get(operand.field)
        moved = patch.value(launch.step) if patch else 0
        yield operand.name, pointer - operand.offset - moved


def kernel_nodes(graph: CapturedGraph) -> list[GraphNode]:
    """The kernel nodes in the order of their dependencies."""
    return [graph.nodes[i] for i in graph.order if graph.nodes[i].kind == "kernel"]
