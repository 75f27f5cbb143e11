"""A process with a device and libraries that tests make up."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import torch
from torch import Tensor

from sdm_runtime.qualify.native_state import GETTERS
from sdm_runtime.qualify.operand_shapes import Sizes
from sdm_runtime.qualify.probe import placed


class FakeSource:
    """A KeySource whose parts are attributes; ``failure`` is raised by the next reads."""

    def __init__(self):
        self.facts = (0, "Device", 9, 0, 132, "uuid")
        self.versions = ("2.11", "13.0", "/lib/libcublas.so.13", 130100, "image")
        self.variables = ()
        self.switches = (False, "highest")
        self.native = (0,) * len(GETTERS)
        self.other = None  # the library that torch prefers
        self.failure = None
        self.reads = 0

    def static(self, device, handle):
        return self.facts, self.versions

    def environment(self, handle):
        return self.variables

    def other_library(self):
        return self.other

    def settings(self):
        self.reads += 1
        if self.failure:
            raise self.failure
        return self.switches

    def handle(self, device):
        return 1

    def handle_state(self, handle):
        return self.native


class FakeSide:
    """A DeviceSide: ``answer`` is what a probe finds, or raises; ``during`` runs inside it."""

    def __init__(self):
        self.answer = ()
        self.during = None
        self.captured = False
        self.probes = []
        self.depth = 0  # of apart_from_captures
        self._lock = threading.Lock()

    def sm_count(self, device):
        return 132

    def capturing(self, device):
        return self.captured

    @contextmanager
    def apart_from_captures(self):
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def prove(self, sizes, classes, device):
        assert self.depth == 1, "a probe may disturb another thread's capture"
        with self._lock:
            self.probes.append((sizes, classes, device))
        if self.during:
            self.during()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def operands(
    sequences=2, chunk=16, hd=64, steps=3, residues=(0, 0, 0)
) -> tuple[Tensor, Tensor, Tensor]:
    tensors = placed(Sizes(sequences, chunk, hd), residues, torch.device("cpu"), steps)
    return tensors.d_u, tensors.x, tensors.d_dv.view(-1, hd)
