"""This process's key, with torch's device functions and the library's place made up."""

import types

import pytest
import torch
from fake_process import operands
from test_qualify_key import map_paths

from sdm_runtime import _core
from sdm_runtime.qualify import key, settings
from sdm_runtime.qualify.key import ProcessSource, read_key
from sdm_runtime.qualify.libraries import KeyUnreadableError
from sdm_runtime.qualify.native_state import GETTERS
from sdm_runtime.qualify.operand_shapes import checked_shape, facts


@pytest.fixture
def looked_for(monkeypatch):
    """A device 0 whose BLAS is the C library; the list of when it was looked for."""
    times: list[float] = []
    libc = next(path for path in map_paths() if "/libc.so" in path or "/libc-" in path)
    device = types.SimpleNamespace(
        name="Device", major=9, minor=0, multi_processor_count=132, uuid="GPU-1"
    )

    def loaded_blas():
        times.append(len(times))
        return (libc, libc)

    functions = {"_cuda_getDevice": lambda: None, "_cuda_getCurrentBlasHandle": lambda: 42}
    for name, function in functions.items():  # which a CPU build of torch lacks
        monkeypatch.setattr(torch._C, name, function, raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: device)
    monkeypatch.setattr(key, "image_hash", lambda: "image")
    monkeypatch.setattr(key, "loaded_blas", loaded_blas)
    return times


def key_of(source):
    tensors = operands()
    return read_key(source, tensors, checked_shape(*map(facts, tensors), 2))


def test_a_key_holds_everything(looked_for):
    made = key_of(ProcessSource())
    assert made.device == (None, "Device", 9, 0, 132, "GPU-1")
    assert made.versions[0] == torch.__version__
    assert made.versions[-3:] == ("absent", "absent", "image")
    assert made.handle == ("absent",) * len(GETTERS)
    assert made.residues == ((0, 0, 0),)
    assert hash(made) == hash(key_of(ProcessSource()))


def test_libraries_are_looked_for_when_some_were_loaded(looked_for, monkeypatch):
    source = ProcessSource()
    assert key_of(source) == key_of(source)
    assert len(looked_for) == 1
    monkeypatch.setattr(_core, "library_changes", lambda: -1)
    key_of(source)
    assert len(looked_for) == 2


@pytest.mark.parametrize("name", ["CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE"])
def test_the_environment_is_that_of_now(looked_for, monkeypatch, name):
    source = ProcessSource()
    before = key_of(source)
    monkeypatch.setenv("NO_VARIABLE_OF_THE_LIBRARIES", "1")
    assert key_of(source) == before  # the control
    with monkeypatch.context() as other:
        other.setenv(name, "1")
        changed = key_of(source)
        assert (name, "1") in changed.environment
        assert changed != before
        assert key_of(source) == changed
    assert key_of(source) not in (before, changed)  # a handle of that time may be in use


def test_in_a_changed_environment_a_verdict_is_a_handles(looked_for, monkeypatch):
    """Each has read the variables when it was made: nothing says which."""
    source = ProcessSource()
    before = key_of(source)

    def another_thread(handle):
        monkeypatch.setattr(torch._C, "_cuda_getCurrentBlasHandle", lambda: handle, raising=False)

    another_thread(43)
    assert key_of(source) == before  # the control
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    third = key_of(source)
    another_thread(44)
    assert key_of(source) != third
    assert before not in (third, key_of(source))


def test_looking_for_a_change_is_cheap(monkeypatch):
    """A backward waits: the variables are gone through after a change alone."""
    environment, gone_through = settings.Environment(), []
    read = settings.relevant_environment

    def counted(variables):
        gone_through.append(1)
        return read(variables)

    monkeypatch.setattr(settings, "relevant_environment", counted)
    for value in (None, "0", "1", None):
        if value is not None:
            monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", value)
        for _ in range(3):
            environment.read()
    assert len(gone_through) == 3


def test_a_process_without_the_libraries_has_no_key():
    if any("libcublas" in path for path in map_paths()):
        pytest.skip("this process has them")
    with pytest.raises(KeyUnreadableError, match="cublas: expected one loaded library, got none"):
        key.loaded_blas()
