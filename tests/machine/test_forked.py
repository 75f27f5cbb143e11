"""Forks in new processes: what a child may do whose parent has run torch alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from child_process import run_python

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks of Linux")

TESTS = Path(__file__).parents[1]

START = f"""
import ctypes, os, select, sys, threading
sys.path[:0] = {[str(TESTS / name) for name in ("ops", "layer")]!r}
import torch
torch.set_num_threads(3)

def torch_work():
    return float((torch.ones(600, 600) @ torch.ones(600, 600)).sum())

def op():
    from op_cases import Case, run
    return float(run(Case(P=4, T=64, S=100, W=8, hd=64)).grads["v"].double().sum())

def layer():
    from layer_cases import make_input, make_layer
    layer = make_layer(num_heads=2).train()
    layer(make_input(layer, tokens=40))[0].sum().backward()
    with torch.no_grad():
        layer.eval()(make_input(layer, tokens=3))
    return float(layer.Wo.weight.grad.double().sum())

def linear():
    from sdm_runtime import bf16_linear
    x = torch.ones(600, 600).bfloat16()
    return float(bf16_linear(x, x).double().sum())

def c_fork():
    return ctypes.PyDLL(None).fork()

def in_child(work, fork=os.fork, patience=60):
    # What a child says, or its error's text; "hangs" where it says nothing.
    read, write = os.pipe()
    child = fork()
    if child == 0:
        try:
            said = str(work())
        except BaseException as error:
            said = str(error)
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    ready = select.select([read], [], [], patience)[0]
    said = os.read(read, 4096).decode() if ready else "hangs"
    os.kill(child, 9)
    os.waitpid(child, 0)
    return said

def one_thread(work):
    torch.set_num_threads(1)
    return work()

def on_a_thread(work):
    held = []
    thread = threading.Thread(target=lambda: held.append(work()))
    thread.start()
    thread.join()
    return held[0]
"""


def said(program: str, import_: str = "import sdm_runtime\n") -> list[str]:
    """The lines that a program prints in a process of its own."""
    done = run_python("-c", import_ + START + program)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("work", ["op", "layer", "linear", "torch_work"])
def test_a_child_of_torchs_own_work_has_threads(work: str) -> None:
    program = f"""
torch_work()
assert "sdm_runtime._core" not in sys.modules  # nothing but the import
print(in_child({work}))
print({work}())
print(in_child({work}))
print(in_child(lambda: (torch_work(), in_child({work}))[1]))
print(on_a_thread(lambda: (torch_work(), in_child({work}))[1]))
"""
    first, *others = said(program)
    float(first)
    assert others == [first] * 4


def test_without_the_import_it_hangs() -> None:
    """The control: what would be."""
    program = "torch_work()\nprint(in_child(torch_work, patience=3))"
    assert said(program, import_="") == ["hangs"]


def test_a_fork_that_python_does_not_make() -> None:
    """A team that is another process's is left alone: who ended it would wait for its threads."""
    program = """
def fork_again():
    return in_child(lambda: one_thread(op))

torch_work()
print(in_child(lambda: one_thread(fork_again), c_fork))
print(op())
print(in_child(op, c_fork))
print(in_child(lambda: one_thread(fork_again), c_fork))
print(in_child(op))
"""
    once, expected, told, again, own = said(program)
    assert "[sdm_write_read] expected a process of its own" in told
    assert own == expected
    assert float(once) == float(again) == pytest.approx(float(expected), rel=1e-4)


def test_a_package_that_comes_after_the_fork_ends_nothing() -> None:
    program = """
def late():
    torch.set_num_threads(1)
    import sdm_runtime
    return in_child(op)

torch_work()
print(in_child(late))
"""
    (made,) = said(program, import_="")
    float(made)


def test_what_a_child_made_itself_it_ends_before_it_forks() -> None:
    program = """
def late():
    import sdm_runtime
    op()
    return in_child(op)

print(on_a_thread(lambda: in_child(late)))  # which has no team
"""
    (made,) = said(program, import_="")
    float(made)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here")
def test_whether_a_process_was_forked_is_known() -> None:
    program = """
from sdm_runtime.machine.forked import _was_forked
print(_was_forked(), in_child(_was_forked), flush=True)
ask = "from sdm_runtime.machine.forked import _was_forked; print(_was_forked())"
if os.fork() == 0:
    os.execv(sys.executable, [sys.executable, "-c", ask])
os.wait()
"""
    assert said(program) == ["False True", "False"]
