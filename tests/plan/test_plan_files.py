"""Files that are not what they should be: devices, pipes, and sizes beyond memory."""

from __future__ import annotations

import contextlib
import errno
import os
import threading

import pytest
import torch

from sdm_runtime import Plan, PlanError, StepChain, kernels
from sdm_runtime.files.reading import MOST_BYTES
from sdm_runtime.format.plan_format import ChainHeader, PlanHeader
from sdm_runtime.inspect.reading.files import load
from sdm_runtime.inspect.reading.model import FileError


@pytest.fixture
def chain():
    plan = kernels.plan_gx_gemm(
        torch.zeros(2, 4, 6), torch.zeros(2, 4, 4), torch.zeros(8, 6), steps=2, num_parallel=1
    )
    return StepChain([plan], 2)


LOADERS = (Plan.load, StepChain.load, load)


@pytest.mark.parametrize("loader", LOADERS)
def test_endless_files_are_refused(loader, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    for path in ("zeros", "."):
        with pytest.raises(OSError, match="not a regular file or a pipe"):
            loader(tmp_path / path)
    with pytest.raises(OSError, match="a pipe that nobody writes to"):
        loader(tmp_path / "pipe")


@pytest.mark.parametrize("loader", LOADERS)
def test_a_plan_or_chain_comes_through_a_pipe(loader, chain, tmp_path):
    saved = chain.plans[0] if loader == Plan.load else chain
    saved.save(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    data = (tmp_path / "file").read_bytes()
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(data))
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)  # the writer need not wait
    writer.start()
    writer.join()
    try:
        assert loader(tmp_path / "pipe").steps == 2
    finally:
        os.close(reader)


@pytest.mark.parametrize("loader", LOADERS)
def test_a_pipe_without_end_is_read_no_further_than_promised(loader, chain, tmp_path):
    chain.save(tmp_path / "chain")
    chain.plans[0].save(tmp_path / "plan")
    data = (tmp_path / ("plan" if loader == Plan.load else "chain")).read_bytes()
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(tmp_path / "pipe", os.O_WRONLY)
    written = []

    def write():
        with open(writer, "wb", buffering=0) as pipe, contextlib.suppress(BrokenPipeError):
            written.append(pipe.write(data))
            while True:
                written.append(pipe.write(bytes(1 << 16)))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        with pytest.raises((PlanError, FileError), match="truncated or padded"):
            loader(tmp_path / "pipe")
    finally:
        os.close(reader)
        thread.join()
    assert sum(written) < 1 << 22


@pytest.mark.parametrize("loader", LOADERS)
def test_a_file_as_large_as_it_says_beyond_any_plan(loader, chain, tmp_path):
    saved = chain.plans[0] if loader == Plan.load else chain
    saved.save(tmp_path / "file")
    first, size = (PlanHeader if loader == Plan.load else ChainHeader).SPANS["total_bytes"]
    with (tmp_path / "file").open("r+b") as file:
        file.seek(first)
        file.write((1 << 40).to_bytes(size, "little"))
        file.truncate(1 << 40)
    with pytest.raises(OSError, match=f"expected at most {MOST_BYTES} bytes, got more"):
        loader(tmp_path / "file")


@pytest.mark.parametrize("kind", ["plan", "chain"])
def test_a_save_replaces_the_file_whole(kind, chain, tmp_path, monkeypatch):
    saved = chain.plans[0] if kind == "plan" else chain
    path = tmp_path / "file"
    path.write_bytes(b"an older file, which is longer than nothing")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail_with(errno.ENOSPC))
        with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
            saved.save(path)
    assert path.read_bytes() == b"an older file, which is longer than nothing"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    saved.save(path)
    assert type(saved).load(path).steps == 2


def fail_with(number):
    def fail(*_):
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("loader", LOADERS)
def test_a_missing_file_is_refused_as_open_does(loader, tmp_path):
    for path in (tmp_path / "none", str(tmp_path / "none")):
        with pytest.raises(FileNotFoundError) as wanted, open(path):
            pass
        with pytest.raises(FileNotFoundError) as refused:
            loader(path)
        assert refused.value.errno == wanted.value.errno == errno.ENOENT
        assert os.fspath(refused.value.filename) == str(tmp_path / "none")
        assert str(refused.value) == str(wanted.value)


def test_a_file_of_the_other_kind_is_named(chain, tmp_path):
    chain.save(tmp_path / "chain")
    chain.plans[0].save(tmp_path / "plan")
    with pytest.raises(PlanError, match=r"this is a chain: StepChain.load reads it \(byte 0\)"):
        Plan.load(tmp_path / "chain")
    with pytest.raises(PlanError, match=r"this is a plan: Plan.load reads it \(byte 0\)"):
        StepChain.load(tmp_path / "plan")
    assert Plan.load(tmp_path / "plan").kernel == chain.plans[0].kernel
    assert StepChain.load(tmp_path / "chain").steps == chain.steps


@pytest.mark.parametrize("loader", LOADERS)
def test_a_sparse_file_beyond_memory(loader, chain, tmp_path):
    path = tmp_path / "huge"
    for write in (lambda: path.write_bytes(b""), lambda: chain.save(path)):
        write()
        os.truncate(path, 1 << 40)
        with pytest.raises((PlanError, FileError)):
            loader(path)


@pytest.mark.parametrize("order", ["descending", "ascending"])
def test_the_order_of_the_steps_is_kept(chain, order, tmp_path):
    StepChain(chain.plans, 2, order=order).save(tmp_path / "chain")
    loaded = StepChain.load(tmp_path / "chain")
    assert loaded.order == loaded.unbound().order == order
    assert loaded.bind(**chain.plans[0].tensors).order == order
    assert load(tmp_path / "chain").order.name.lower() == order
    # A file from before chains had an order says nothing there: descending.
    zeros = (tmp_path / "chain").read_bytes()[28:32] == bytes(4)
    assert zeros == (order == "descending")


def test_one_byte_more_is_found_and_none_is_fine(chain, tmp_path):
    for save, loader in ((chain.save, StepChain.load), (chain.plans[0].save, Plan.load)):
        save(tmp_path / "file")
        assert loader(tmp_path / "file").steps == 2
        with (tmp_path / "file").open("ab") as file:
            file.write(b"\0")
        with pytest.raises(PlanError):
            loader(tmp_path / "file")
