"""``_core.pyi`` says what the extension has; each check with a stub or a module that is wrong."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import pytest

from sdm_runtime import _core

STUB = Path(__file__).parents[1] / "sdm_runtime/_core.pyi"
# Names that a build without CUDA lacks, and those of builds for the tests.
CUDA_ONLY = {
    "ChainGraph",
    "PrivateStream",
    "counted_launches",
    "enable_counter",
    "enable_ranges",
    "exchange_capture_mode",
}
TESTING_ONLY = {"testing"}
SPECIAL = ("__init__", "__str__", "__eq__", "__hash__")


Types = frozenset[str] | None  # the extension's classes in a type; None: a container of anything


@dataclass(frozen=True)
class Parameter:
    name: str | None  # None: it has no name for callers
    optional: bool
    core_types: Types


@dataclass(frozen=True)
class Signature:
    parameters: tuple[Parameter, ...]  # without self
    result: Types
    gives_none: bool
    static: bool = False
    spread: bool = False  # takes any number of arguments by position


Members = dict[str, Signature | None]  # None: no function
Module = dict[str, Signature | Members]


def signature_of(
    node: ast.FunctionDef, classes: set[str], *, method: bool, docs: bool
) -> Signature:
    """Of a stub's function, or of one made from a docstring of pybind11 (``docs``)."""
    static = any(ast.unparse(name) == "staticmethod" for name in node.decorator_list)
    positional, named = list(node.args.posonlyargs), list(node.args.args)
    given = [*positional, *named]
    first_optional = len(given) - len(node.args.defaults)
    parameters = []
    for at, argument in enumerate(given):
        if method and not static and at == 0:
            continue
        unnamed = bool(re.fullmatch(r"arg\d+", argument.arg)) if docs else argument in positional
        parameters.append(
            Parameter(
                None if unnamed else argument.arg,
                at >= first_optional,
                core_types(argument.annotation, classes),
            )
        )
    none = node.returns is not None and ast.unparse(node.returns) == "None"
    result = core_types(node.returns, classes)
    return Signature(tuple(parameters), result, none, static, node.args.vararg is not None)


def core_types(annotation: ast.expr | None, classes: set[str]) -> Types:
    text = "" if annotation is None else ast.unparse(annotation)
    return None if text in ("dict", "list", "tuple") else frozenset(classes & set(words_of(text)))


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def read_stub(text: str) -> Module:
    """The public names of a stub; names with an underscore are its own."""
    tree = ast.parse(text)
    nodes = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    nodes = [node for node in nodes if not node.name.startswith("_")]
    classes = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    found: Module = {}
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = signature_of(node, classes, method=False, docs=False)
        else:
            found[node.name] = {
                name: value for part in node.body for name, value in stub_member(part, classes)
            }
    return found


def stub_member(node: ast.stmt, classes: set[str]) -> list[tuple[str, Signature | None]]:
    if isinstance(node, ast.FunctionDef):
        return [(node.name, signature_of(node, classes, method=True, docs=False))]
    if isinstance(node, ast.AnnAssign):
        return [(ast.unparse(node.target), None)]
    return []


def read_module(module: ModuleType) -> Module:
    """The same of the extension, from the signatures in its docstrings."""
    public = {n: v for n, v in vars(module).items() if not n.startswith("_")}
    public = {n: v for n, v in public.items() if n not in TESTING_ONLY}
    classes = {name for name, value in public.items() if isinstance(value, type)}
    found: Module = {}
    for name, value in public.items():
        if not isinstance(value, type):
            found[name] = documented(value.__doc__, classes, method=False)
            continue
        members: Members = {}
        for member, own in vars(value).items():
            if member.startswith("_") and member not in SPECIAL:
                continue
            static = isinstance(own, staticmethod)
            doc = getattr(value, member).__doc__ if own is not None else None
            if own is None:
                members[member] = None
            elif "Initialize self." not in (doc or ""):  # else: no constructor for Python
                signature = documented(doc, classes, method=not static)
                members[member] = replace(signature, static=static)
        found[name] = members
    return found


def documented(doc: str | None, classes: set[str], *, method: bool) -> Signature:
    line = (doc or "").partition("\n")[0]
    text = re.sub(r"[\w:]+::", "", line)  # C++'s name of a class that was bound later
    node = ast.parse(f"def {text}: ...").body[0]
    assert isinstance(node, ast.FunctionDef)
    return signature_of(node, classes, method=method, docs=True)


def differences(stub: Module, module: Module) -> list[str]:
    """Everything in which they differ."""
    absent = set() if CUDA_ONLY & set(module) else CUDA_ONLY
    found = [f"{name}: only in the stub" for name in sorted(set(stub) - set(module) - absent)]
    found += [f"{name}: only in the module" for name in sorted(set(module) - set(stub))]
    for name in sorted(set(stub) & set(module)):
        ours, theirs = stub[name], module[name]
        if isinstance(ours, dict) and isinstance(theirs, dict):
            found += [f"{name}.{text}" for text in member_differences(ours, theirs)]
        elif isinstance(ours, dict) or isinstance(theirs, dict):
            found.append(f"{name}: a class in one, a function in the other")
        elif not same(ours, theirs):
            found.append(f"{name}: {ours}, in the module {theirs}")
    return found


def member_differences(ours: Members, theirs: Members) -> list[str]:
    found = [f"{name}: only in the stub" for name in sorted(set(ours) - set(theirs))]
    found += [f"{name}: only in the module" for name in sorted(set(theirs) - set(ours))]
    for name in sorted(set(ours) & set(theirs)):
        mine, other = ours[name], theirs[name]
        if name != "__eq__" and not same(mine, other):  # whose argument is any object
            found.append(f"{name}: {mine}, in the module {other}")
    return found


def same(ours: Signature | None, theirs: Signature | None) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    if ours.spread and not theirs.spread:
        named = any(parameter.name for parameter in theirs.parameters)
        return not named and same(replace(ours, spread=False), replace(theirs, parameters=()))
    known = replace(ours, result=None) if theirs.result is None else ours
    if len(ours.parameters) == len(theirs.parameters):
        pairs = zip(ours.parameters, theirs.parameters, strict=True)
        vague = (replace(a, core_types=None) if b.core_types is None else a for a, b in pairs)
        known = replace(known, parameters=tuple(vague))
    return known == theirs


def test_the_stub_is_what_the_extension_has() -> None:
    stub = read_stub(STUB.read_text())
    assert len(stub) > 35
    assert {name for name in CUDA_ONLY if name in stub} == CUDA_ONLY
    assert differences(stub, read_module(_core)) == []


# Edits of the stub that must be noticed: what is replaced, by what, and what is said then.
EDITS = {
    "a function is missing": (
        "def kernel_names() -> list[str]: ...\n",
        "",
        "kernel_names: only in the module",
    ),
    "a function too many": (
        "def kernel_names(",
        "def more() -> int: ...\ndef kernel_names(",
        "more: only in the stub",
    ),
    "a method is missing": (
        "    def on_host(self) -> bool: ...\n",
        "",
        "Chain.on_host: only in the module",
    ),
    "a method too many": (
        "    def on_host(",
        "    def off(self) -> int: ...\n    def on_host(",
        "Chain.off: only in the stub",
    ),
    "a class is a function": (
        "class Operands:",
        "def Operands() -> None: ...\nclass _Other:",
        "Operands: a class in one",
    ),
    "an argument is missing": (
        "first_step: int, stream: int, /",
        "stream: int, /",
        "token_gradients: ",
    ),
    "another name": ("strided: torch.layout", "layout: torch.layout", "TensorReader.__init__: "),
    "a name where there is none": (
        "def early_fields(kernel: str, /)",
        "def early_fields(kernel: str)",
        "early_fields: ",
    ),
    "no name where there is one": (
        "def aligned(self, bytes: int)",
        "def aligned(self, bytes: int, /)",
        "Operands.aligned: ",
    ),
    "another default": (
        "ascending: bool = False) -> bytes",
        "ascending: bool) -> bytes",
        "encode_chain: ",
    ),
    "another class": (
        "def bind(self, operands: Sequence[tuple[str, TensorRef]], /)",
        "def bind(self, operands: Operands, /)",
        "Plan.bind: ",
    ),
    "another result": (
        "def rebind(self, operands: Operands) -> Chain",
        "def rebind(self, operands: Operands) -> Plan",
        "Chain.rebind: ",
    ),
    "a result where there is none": (
        "def check_together(plans: Sequence[Plan], steps: int, /) -> None",
        "def check_together(plans: Sequence[Plan], steps: int, /) -> int",
        "check_together: ",
    ),
    "no static method": (
        "    @staticmethod\n    def decode(",
        "    def decode(self, ",
        "Plan.decode: ",
    ),
    "can be hashed": (
        "    __hash__: ClassVar[None]  # type: ignore[assignment]\n",
        "",
        "Device.__hash__: only in the module",
    ),
    "any number of named arguments": (
        "def encode_chain(plans: Sequence[Plan], steps: int, ascending: bool = False)",
        "def encode_chain(*plans: Plan)",
        "encode_chain: ",
    ),
}


@pytest.mark.parametrize(("before", "after", "said"), EDITS.values(), ids=EDITS)
def test_a_wrong_stub_is_found(before: str, after: str, said: str) -> None:
    text = STUB.read_text()
    assert before in text
    found = differences(read_stub(text.replace(before, after, 1)), read_module(_core))
    assert any(line.startswith(said) for line in found), found


def test_names_of_cuda_builds_may_be_missing_together() -> None:
    stub = read_stub(STUB.read_text())
    whole: Module = {**stub}
    host = {name: value for name, value in stub.items() if name not in CUDA_ONLY}
    assert differences(stub, whole) == []
    assert differences(stub, host) == []
    assert differences(stub, {**host, "PrivateStream": whole["PrivateStream"]}) != []
