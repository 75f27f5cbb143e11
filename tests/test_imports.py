"""Which modules of the package import which; every rule with imports that it must find."""

from __future__ import annotations

from pathlib import Path

import pytest
from module_graph import EXTENSIONS, Graph, circles, imports_of, module_graph, read_modules
from rooms import Rooms

FACE = "sdm_runtime"
ROOT = Path(__file__).parents[1]
# One import in all the ways that a module can be imported; {0} is a package, {1} a module of it.
WAYS = {
    "at the top": "from {0}.{1} import x\n",
    "the module's name": "import {0}.{1}\n",
    "from its package": "from {0} import {1}\n",
    "in a function": "def f():\n    from {0}.{1} import x\n",
    "for the type checker": "if TYPE_CHECKING:\n    from {0}.{1} import x\n",
    "by a call": "def f():\n    importlib.import_module('{0}.{1}')\n",
}
LOW = "sdm_runtime.tensor.refs"  # a module that plan.chain imports


@pytest.fixture(scope="module")
def graph() -> Graph:
    return module_graph(read_modules(ROOT))


def test_no_module_leads_back_to_itself(graph: Graph) -> None:
    assert len(graph) > 100
    assert circles(graph) == []


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_planted_circle_is_found(graph: Graph, way: str) -> None:
    imported = imports_of(LOW, way.format("sdm_runtime.plan", "chain"), graph)
    (found,) = circles(graph | {LOW: graph[LOW] | imported})
    assert {LOW, "sdm_runtime.plan.chain"} <= set(found)


def test_relative_imports_are_read() -> None:
    texts = {
        "sdm_runtime.__init__": "from .a import b\n",
        "sdm_runtime.a.__init__": "from . import b\nfrom .. import c\n",
        "sdm_runtime.a.b": "from . import b\nfrom ..c import x\nfrom . import no_module\n",
        "sdm_runtime.c": "import torch.nn\nfrom sdm_runtime import _core\n",
    }
    assert module_graph(texts) == {
        "sdm_runtime": {"sdm_runtime.a.b"},
        "sdm_runtime.a": {"sdm_runtime.a.b", "sdm_runtime.c"},
        "sdm_runtime.a.b": {"sdm_runtime.a.b", "sdm_runtime.c", "sdm_runtime.a"},
        "sdm_runtime.c": {"torch", "sdm_runtime._core"},
    }
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"d"}}) == [["b", "c"], ["d"]]


ROOMS = [
    Rooms(
        "sdm_runtime",
        ".",
        (
            ("errors",),
            ("files", "machine", "commands", "instruments", "memory_error"),
            ("format",),
            ("tensor",),
            ("plan",),
            ("kernels", "dispatch"),
            ("qualify", "linear"),
            ("ops", "graphs"),
            ("layer", "inspect"),
            ("train",),
        ),
    ),
    Rooms(
        "sdm_runtime.ops",
        ".",
        (
            ("call",),
            ("routes",),
            ("chunks",),
            ("forward",),
            ("backward",),
            ("autograd",),
            ("traced",),
            ("public",),
        ),
    ),
    Rooms(
        "sdm_runtime.inspect",
        ".",
        (("reading",), ("verify",), ("report", "captured"), ("commands",), ("__main__",)),
    ),
    Rooms(
        "sdm_runtime.train",
        ".",
        (
            ("shown", "free_memory"),
            ("config",),
            ("data",),
            ("trainer",),
            ("checkpoints",),
            ("tasks",),
            ("report",),
            ("run",),
            ("__main__",),
        ),
    ),
]


@pytest.mark.parametrize("rooms", ROOMS, ids=lambda rooms: rooms.whole)
def test_rooms_point_one_way(rooms: Rooms, graph: Graph) -> None:
    assert rooms.rooms_of(graph) == {room for rank in rooms.ranks for room in rank}
    assert rooms.violations(without_extensions(graph)) == []


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("rooms", ROOMS, ids=lambda rooms: rooms.whole)
def test_planted_steps_up_and_aside_are_found(rooms: Rooms, way: str) -> None:
    for room, other in rooms.forbidden_steps():
        planted, folder = f"{rooms.whole}.{room}.planted", f"{rooms.whole}.{other}"
        imported = imports_of(planted, way.format(folder, "target"), {f"{folder}.target"})
        assert len(rooms.violations({planted: imported})) == 1
        assert rooms.violations({f"{folder}.planted": imported}) == []


def without_extensions(graph: Graph) -> Graph:
    return {name: imported - set(EXTENSIONS) for name, imported in graph.items()}


def test_the_face_is_for_users(graph: Graph) -> None:
    """Its names stand for everything. The version is its own."""
    uses = {name for name, imported in graph.items() if FACE in imported}
    assert uses == {"sdm_runtime.commands.version_option"}
    assert imports_of("sdm_runtime.plan.plan", "from sdm_runtime import backends\n", graph) == {
        FACE
    }


# What reads files and writes about them; it works where there is neither torch nor the extension.
LIGHT = (
    "sdm_runtime.errors",
    "sdm_runtime.files",
    "sdm_runtime.format",
    "sdm_runtime.commands",
    "sdm_runtime.inspect.reading",
    "sdm_runtime.inspect.verify",
    "sdm_runtime.inspect.report",
    "sdm_runtime.inspect.commands",
)
HEAVY = {"torch", "sdm_runtime._core"}
LOADS = (("torch", "nn"), ("sdm_runtime", "_core"), ("sdm_runtime.plan", "plan"))


def heavy_imports(graph: Graph) -> dict[str, set[str]]:
    """What light modules import that loads torch or the extension."""
    light = {name for name in graph if name.startswith(tuple(room + "." for room in LIGHT))}
    light |= set(LIGHT) & set(graph)
    allowed = {*light, FACE}  # the face loads nothing before it is asked
    found = {}
    for name in light:
        ours = {target for target in graph[name] if target.startswith("sdm_runtime.")}
        if wrong := (ours - allowed) | (graph[name] & HEAVY):
            found[name] = wrong
    return found


def test_files_are_read_without_torch(graph: Graph) -> None:
    """``verify.executor`` asks the extension too, and says so where there is none."""
    assert heavy_imports(graph) == {"sdm_runtime.inspect.verify.executor": {"sdm_runtime._core"}}


@pytest.mark.parametrize("room", LIGHT)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("heavy", LOADS)
def test_a_planted_load_of_torch_is_found(room: str, way: str, heavy: tuple[str, str]) -> None:
    known = {"sdm_runtime", "sdm_runtime.plan", "sdm_runtime.plan.plan"}
    imported = imports_of(f"{room}.planted", way.format(*heavy), known)
    assert heavy_imports({f"{room}.planted": imported}) == {f"{room}.planted": imported}
