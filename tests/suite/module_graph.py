"""Who imports whom in the package, read from the text of its modules."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

PACKAGE = "sdm_runtime"
EXTENSIONS = (f"{PACKAGE}._core",)  # modules without a Python source

Graph = dict[str, set[str]]


def read_modules(root: Path) -> dict[str, str]:
    """The text of each module below ``root / PACKAGE``; packages end in ``.__init__``."""
    texts = {}
    for path in sorted(root.joinpath(PACKAGE).rglob("*.py")):
        texts[".".join(path.relative_to(root).with_suffix("").parts)] = path.read_text()
    return texts


def module_graph(texts: Mapping[str, str]) -> Graph:
    """What each module imports: modules of the package, and the names of other packages.

    Imports in functions and for the type checker count as others do, and so does a name given to
    ``import_module``. That a module's packages are imported before it does not count: a package
    that re-exports what is in it would be a circle.
    """
    known = {name.removesuffix(".__init__") for name in texts}
    return {
        name.removesuffix(".__init__"): imports_of(name, text, known)
        for name, text in texts.items()
    }


def imports_of(name: str, text: str, known: Collection[str]) -> set[str]:
    """What one module imports, where the package has the ``known`` modules."""
    return set(_imports(name, ast.parse(text), {*known, *EXTENSIONS}))


def circles(graph: Graph) -> list[list[str]]:
    """Groups of modules each of which leads to the others (or to itself)."""
    reached = {name: reach(graph, name) for name in graph}
    found = {
        tuple(sorted(other for other in reached[name] if name in reached.get(other, ())))
        for name in graph
        if name in reached[name]
    }
    return [list(names) for names in sorted(found)]


def reach(graph: Graph, start: str) -> set[str]:
    """Everything that a module's imports lead to."""
    seen: set[str] = set()
    left = [start]
    while left:
        new = graph.get(left.pop(), set()) - seen
        seen |= new
        left += new
    return seen


def _imports(name: str, tree: ast.AST, known: set[str]) -> Iterator[str]:
    package = name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (_longest(alias.name, known) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            parts = [*(above if node.level else ()), *([node.module] if node.module else ())]
            yield from (_longest(".".join([*parts, alias.name]), known) for alias in node.names)
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            for given in node.args[:1]:
                if isinstance(given, ast.Constant) and isinstance(given.value, str):
                    yield _longest(given.value, known)


def _longest(target: str, known: set[str]) -> str:
    """The module that a dotted name is of; of another package, the package's name."""
    parts = target.split(".")
    if parts[0] != PACKAGE:
        return parts[0]
    while len(parts) > 1 and ".".join(parts) not in known:
        parts.pop()
    return ".".join(parts)
