"""The fake driver as fixtures. Every file here runs in a process of its own, under
test_under_fake_driver.py; a plain run of the test suite collects none of them."""

import contextlib
import ctypes
import json
import os
from pathlib import Path

import pytest
from core_testing import core_testing
from forged import DEVICE_CODE, host_plan, write_image

FOLDER = os.environ.get("SDM_FAKE_DRIVER")
collect_ignore_glob = [] if FOLDER else ["test_*.py"]


class FakeDriver:
    """The control side of the stand-in: its log, failures to inject, stream handles."""

    def __init__(self, folder):
        self.libraries = folder
        self.folder: Path | None = None  # of the device code that it is to load
        self._handles = []
        self._library = ctypes.CDLL(str(folder / "libcuda.so.1"))
        self._library.fake_take_log.restype = ctypes.c_char_p
        self._library.fake_stream.restype = ctypes.c_void_p
        self.blas = ctypes.CDLL(str(folder / "libcublas.so.99"))

    def log(self, *calls):
        """The logged calls of these kinds (all, without any) since the last time."""
        entries = json.loads(self._library.fake_take_log())
        return [entry for entry in entries if not calls or entry["call"] in calls]

    def declare(self, name, param_bytes, static_shared=0, max_threads=1024):
        self._library.fake_declare(name.encode(), param_bytes, static_shared, max_threads)

    def fail(self, function, result, working=0):
        self._library.fake_fail(function.encode(), working, result)

    def keep_busy(self, busy):
        """Whether the device is always behind with what it was given."""
        self._library.fake_keep_busy(int(busy))

    def delay(self, exec_call_us):
        """How long calls on an instantiated graph take."""
        self._library.fake_delay(exec_call_us)

    def overlapping(self):
        """Calls since the last time that met another one on the same instantiated graph."""
        return self._library.fake_take_overlapping()

    def unrelaxed(self):
        """Such calls since the last time in a mode that captures of other threads forbid."""
        return self._library.fake_take_unrelaxed()

    def launch_unrelaxed(self):
        """Launch an empty graph in the thread's own mode: the control of unrelaxed()."""
        graph, made = ctypes.c_void_p(), ctypes.c_void_p()
        self._library.cuGraphCreate(ctypes.byref(graph), 0)
        self._library.cuGraphInstantiateWithFlags(ctypes.byref(made), graph, ctypes.c_uint64(0))
        self._library.cuGraphLaunch(made, ctypes.c_void_p(self.stream()))

    def stream(self, device=0):
        return self._library.fake_stream(device)

    @contextlib.contextmanager
    def capturing(self, device=0):
        """The device's stream is being captured."""
        self._library.fake_capture(device, 1)
        try:
            yield
        finally:
            self._library.fake_capture(device, 0)

    def blas_handle(self, device=0):
        """A handle whose stream is the device's."""
        handle = ctypes.c_void_p(self.stream(device))
        self._handles.append(handle)  # a handle is its own address: it must stay where it is
        return ctypes.addressof(handle)

    def capture(self, device=0):
        """What library calls are captured with: stream, handle and an event."""
        event = ctypes.create_string_buffer(1)
        self._handles.append(event)
        return self.stream(device), self.blas_handle(device), ctypes.addressof(event)

    @property
    def context_depth(self):
        return self._library.fake_context_depth()


@pytest.fixture(scope="session")
def session_driver(tmp_path_factory):
    folder = tmp_path_factory.mktemp("device")
    driver = FakeDriver(Path(FOLDER))
    entries = []
    for name, kernel, waits in DEVICE_CODE:
        image = write_image(folder / f"{name}.fatbin")
        entries.append((name, kernel, f"{name}.fatbin", core_testing().sha256(image), waits))
        driver.declare(name, len(host_plan(kernel).params()))
    core_testing().replace_device_code(str(folder), entries)
    driver.folder = folder
    return driver


@pytest.fixture
def driver(session_driver):
    session_driver.log()
    yield session_driver
    assert session_driver.context_depth == 0, "a context was left on the stack"
