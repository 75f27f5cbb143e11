"""Which modules of the package import which; every rule with imports that it must find."""

from __future__ import annotations

from pathlib import Path

import pytest
from module_graph import Graph, circles, imports_of, module_graph, read_modules

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
