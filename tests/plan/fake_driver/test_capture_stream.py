"""Capture streams beside a stand-in for torch's allocator and its BLAS workspaces."""

import contextlib
import gc
import threading
from types import SimpleNamespace

import pytest
import torch

from sdm_runtime.plan import blas_step, capture_stream
from sdm_runtime.plan.capture_stream import CaptureStream

CUDA = torch.device("cuda", 0)


class Pool:
    """Torch's memory pool: what was allocated from it."""

    def __init__(self):
        self.blocks = []

    def snapshot(self):
        return list(self.blocks)


class Event:
    """Torch's event, which the driver knows from its first record on."""

    cuda_event = 0

    def record(self, stream):
        self.cuda_event = 1000 + stream.address


class Torch:
    """Keeps a workspace for each thread and stream, taken from the pool in use."""

    def __init__(self, monkeypatch):
        self.backend: str
        self.workspaces = {}
        self.caches = True
        self._pool = self._stream = None
        for name, value in {
            "get_allocator_backend": lambda: self.backend,
            "MemPool": Pool,
            "Event": Event,
            "use_mem_pool": lambda pool, device: self._using("_pool", pool),
            "stream": lambda stream: self._using("_stream", stream),
            "device": lambda device: contextlib.nullcontext(),
            "current_blas_handle": self.handle,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        self.backend = "native"
        for module in (blas_step, capture_stream):
            monkeypatch.setattr(module, "external_stream", lambda _, a: SimpleNamespace(address=a))
        monkeypatch.setattr(capture_stream, "_kept", {})

    @contextlib.contextmanager
    def _using(self, name, value):
        before = getattr(self, name)
        setattr(self, name, value)
        try:
            yield
        finally:
            setattr(self, name, before)

    def handle(self):
        key = (threading.get_ident(), self._stream.address)
        if key not in self.workspaces:
            self.workspaces[key] = self._pool
            if self._pool is not None and self.caches:
                self._pool.blocks.append(key)
        return 7


@pytest.fixture
def fake_torch(driver, monkeypatch):
    return Torch(monkeypatch)


def test_workspaces_come_from_the_streams_own_pool(fake_torch):
    streams = [CaptureStream(CUDA) for _ in range(2)]
    for stream in streams:
        assert stream.blas_handle() == 7
    (first, second) = (kept.pool for kept in capture_stream._kept.values())
    thread = threading.get_ident()
    assert first.blocks == [(thread, streams[0].address)]
    assert second.blocks == [(thread, streams[1].address)]
    blas_step.blas_handle(CUDA, 99)  # the control: elsewhere they come from no pool
    assert fake_torch.workspaces[thread, 99] is None


def test_a_stream_comes_back_with_its_pool(fake_torch):
    stream = CaptureStream(CUDA)
    stream.blas_handle()
    address, (kept,) = stream.address, capture_stream._kept.values()
    del stream
    gc.collect()
    again = CaptureStream(CUDA)
    assert again.address == address
    again.blas_handle()
    assert len(kept.pool.blocks) == 1  # torch has it still
    fake_torch.workspaces.clear()  # as torch._C._cuda_clearCublasWorkspaces() does
    again.blas_handle()
    assert len(kept.pool.blocks) == 2
    assert again.done is kept.done
    assert again.done.cuda_event == 1000 + address


@pytest.mark.parametrize("kind", ["another allocator", "no caching"])
def test_what_nothing_can_hold_is_refused(fake_torch, kind):
    if kind == "another allocator":
        fake_torch.backend = "cudaMallocAsync"
    else:
        fake_torch.caches = False
    with pytest.raises(RuntimeError, match="expected torch's native allocator, caching, for a ch"):
        CaptureStream(CUDA).blas_handle()
    if kind == "another allocator":
        CaptureStream(CUDA).hold_workspaces()  # captured steps go on without


def test_both_threads_of_a_step_are_asked(fake_torch):
    threads = []
    leaf = torch.zeros(2, requires_grad=True)
    called = capture_stream._InBothThreads.apply(leaf, lambda: threads.append(1))
    assert len(threads) == 1
    called.sum().backward()
    assert len(threads) == 2
    assert leaf.grad.tolist() == [1, 1]
