"""The parts of a key, read from recorded environments."""

import ctypes
import types

import pytest
import torch
from child_process import run_python

from sdm_runtime import _core
from sdm_runtime.qualify import settings
from sdm_runtime.qualify.key import step_residues
from sdm_runtime.qualify.libraries import BlasPaths, KeyUnreadableError, blas_paths
from sdm_runtime.qualify.native_state import GETTERS, NativeBlas, open_native
from sdm_runtime.qualify.probe import placed
from sdm_runtime.qualify.settings import TorchSettings, relevant_environment


def mapping(path, inode, device="08:01", offset="00000000"):
    return f"7f10a0000000-7f10a0200000 r-xp {offset} {device} {inode}    {path}"


WHEEL = "/venv/lib/python3.12/site-packages/nvidia/cu13/lib"
BLAS, LT = f"{WHEEL}/libcublas.so.13", f"{WHEEL}/libcublasLt.so.13"
ANONYMOUS = (
    "7ffd1c5f2000-7ffd1c613000 rw-p 00000000 00:00 0 [stack]\n7f00-7f01 rw-p 00000000 00:00 0"
)


def maps(*lines):
    return "\n".join([ANONYMOUS, mapping("/usr/lib/libc.so.6", 7), *lines, ANONYMOUS]) + "\n"


READABLE = {
    "wheel": (maps(mapping(BLAS, 1), mapping(BLAS, 1, offset="00a0"), mapping(LT, 2)), (BLAS, LT)),
    "toolkit with spaces": (
        maps(mapping("/opt/my cuda/libcublas.so.12.8.4.1", 1), mapping("/opt/libcublasLt.so", 2)),
        ("/opt/my cuda/libcublas.so.12.8.4.1", "/opt/libcublasLt.so"),
    ),
    "a second name of one file": (
        maps(mapping(BLAS, 1), mapping("/usr/lib/libcublas.so.13", 1), mapping(LT, 2)),
        (BLAS, LT),
    ),
    "others of the family": (
        maps(mapping(BLAS, 1), mapping(LT, 2), mapping(f"{WHEEL}/libcublasMp.so.0", 3)),
        (BLAS, LT),
    ),
}


@pytest.mark.parametrize("name", READABLE)
def test_the_loaded_libraries(name):
    text, expected = READABLE[name]
    assert blas_paths(text) == expected


OTHER = "/usr/local/cuda/lib64/libcublas.so.12"
UNREADABLE = {
    "two cublas": (maps(mapping(BLAS, 1), mapping(OTHER, 9), mapping(LT, 2)), "cublas: .*, "),
    "two files of a name": (
        maps(mapping(BLAS, 1), mapping(BLAS, 1, device="08:02"), mapping(LT, 2)),
        "cublas: expected one loaded library",
    ),
    "two lt": (
        maps(mapping(BLAS, 1), mapping(LT, 2), mapping("/x/libcublasLt.so.12", 3)),
        "cublas_lt: expected one",
    ),
    "no lt": (maps(mapping(BLAS, 1)), "cublas_lt: expected one loaded library, got none"),
    "nothing": ("", "cublas: expected one loaded library, got none"),
    "replaced": (maps(mapping(f"{BLAS} (deleted)", 1), mapping(LT, 2)), "file .* is gone"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_libraries_that_cannot_be_told(name):
    text, message = UNREADABLE[name]
    with pytest.raises(KeyUnreadableError, match=message):
        blas_paths(text)


GETTER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))


class Library:
    """A release of the BLAS: its getters' values by name; a negative one is a status."""

    def __init__(self, values):
        self.values = values

    def find(self, name):
        if name not in self.values:
            return None
        given = self.values[name]

        def getter(handle, value):
            assert handle == 42
            value[0] = given
            return 0 if given >= 0 else -given

        return GETTER(getter)


FIVE = dict(zip(GETTERS, (1, 2, 3, 4, 5, 6, 7, 8, 9), strict=True))
OLD = {name: FIVE[name] for name in GETTERS[:4]}


def native(values, lt=None):
    return NativeBlas(Library(values).find, lambda name: lt)


def test_handle_state_of_releases():
    assert native(FIVE).state(42) == (1, 2, 3, 4, 5, 6, 7, 8, 9)
    assert native(OLD).state(42) == (1, 2, 3, 4, *["absent"] * 5)
    assert native({}).state(42) == ("absent",) * len(GETTERS)
    unsupported = native(FIVE | {"cublasGetEmulationStrategy": -15}).state(42)
    assert unsupported == (1, 2, 3, 4, "unsupported", 6, 7, 8, 9)


@pytest.mark.parametrize("name", GETTERS)
def test_a_getter_that_fails_declines_and_every_getter_counts(name):
    with pytest.raises(KeyUnreadableError, match=f"{name}: the library returned status 7"):
        native(FIVE | {name: -7}).state(42)
    assert native(FIVE | {name: 77}).state(42) != native(FIVE).state(42)


def test_versions_of_the_libraries():
    assert native({"cublasGetVersion_v2": 130100}, lambda: 130102).versions(42) == (130100, 130102)
    assert native({}).versions(42) == ("absent", "absent")
    with pytest.raises(KeyUnreadableError, match=r"cublasGetVersion_v2: .* status 3"):
        native({"cublasGetVersion_v2": -3}).versions(42)


def test_functions_are_found_in_a_library_that_is_loaded():
    path = str(next(p for p in map_paths() if "/libc.so" in p or "/libc-" in p))
    opened = open_native(BlasPaths(path, path))
    assert opened.state(42) == ("absent",) * len(GETTERS)
    with pytest.raises(KeyUnreadableError, match="cannot be opened again"):
        open_native(BlasPaths("/nowhere/libcublas.so.13", path))


def map_paths():
    with open("/proc/self/maps") as text:
        return [line.split(maxsplit=5)[5].strip() for line in text if len(line.split()) > 5]


SWITCHES_211 = {
    "_get_cublas_allow_tf32": lambda: False,
    "_get_float32_matmul_precision": lambda: "highest",
    "_get_fp32_precision_getter": lambda backend, op: f"{backend}.{op}",
    "_get_blas_preferred_backend": lambda: "cublas",
    "_get_cublas_allow_fp16_reduced_precision_reduction": lambda: (True, True),
    "_get_cublas_allow_bf16_reduced_precision_reduction": lambda: (True, True),
    "_get_cublas_allow_fp16_accumulation": lambda: False,
    "_get_deterministic_algorithms": lambda: False,
    "_get_deterministic_algorithms_warn_only": lambda: False,
    "_get_sm_carveout_experimental": lambda: None,
}
SWITCHES_213 = SWITCHES_211 | {
    "_cuda_getCublasWorkspaceSize": lambda: 32 << 20,
    "_cuda_getCublasLtWorkspaceSize": lambda: 32 << 20,
}


def switches(functions):
    return TorchSettings(types.SimpleNamespace(**functions)).read()


def test_settings_of_releases():
    old, new = switches(SWITCHES_211), switches(SWITCHES_213)
    assert old.count("absent") == 2, "torch 2.11 has no getters of workspace sizes"
    assert new.count("absent") == 0
    assert new.count(32 << 20) == 2
    assert {"generic.all", "cuda.all", "cuda.matmul"} <= set(new)
    assert hash(old) != hash(new)
    assert switches({}) == ("absent",) * len(new)


@pytest.mark.parametrize("name", SWITCHES_213)
def test_every_switch_counts(name):
    changed = SWITCHES_213 | {name: lambda *arguments: "another"}
    assert switches(changed) != switches(SWITCHES_213)


def test_contradictory_switches_are_a_state():
    def refuse():
        raise RuntimeError("mixed use of the old and the new switches")

    changed = SWITCHES_213 | {"_get_cublas_allow_tf32": refuse}
    assert "contradictory" in switches(changed)


def test_this_torchs_settings_follow_its_switches():
    reader = settings.torch_settings()
    before, precision = reader.read(), torch.get_float32_matmul_precision()
    hash(before)
    try:
        torch.set_float32_matmul_precision("medium")
        assert reader.read() != before
    finally:
        torch.set_float32_matmul_precision(precision)


@pytest.mark.parametrize(
    ("preferred", "other"),
    [("Cublas", None), ("Default", None), ("Cublaslt", "Cublaslt"), ("Ck", "Ck")],
)
def test_the_library_that_torch_prefers(preferred, other):
    getter = {settings._PREFERRED: lambda: types.SimpleNamespace(name=preferred)}
    reader = TorchSettings(types.SimpleNamespace(**getter))
    assert reader.other_library() == other
    assert TorchSettings(types.SimpleNamespace()).other_library() is None  # no such release


def test_what_this_torch_prefers(monkeypatch):
    assert settings.torch_settings().other_library() is None
    monkeypatch.setenv("TORCH_BLAS_PREFER_CUBLASLT", "1")  # torch reads it when it starts
    assert settings.torch_settings().other_library() is None
    done = run_python(
        "-c",
        "from sdm_runtime.qualify.settings import torch_settings as s; print(s().other_library())",
    )
    assert done.stdout.split() == ["Cublaslt"], done.stderr


def test_the_variables_that_count():
    variables = {
        "HOME": "/home",
        "NVIDIA_TF32_OVERRIDE": "0",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "CUBLASLT_WORKSPACE_SIZE": "1024",
        "TORCH_BLAS_PREFER_CUBLASLT": "1",
        "TORCH_LOGS": "x",
    }
    names = [name for name, _ in relevant_environment(variables)]
    assert names == sorted(set(variables) - {"HOME", "TORCH_LOGS"})
    assert relevant_environment({}) == ()


@pytest.mark.parametrize("sizes", [(1, 16, 4), (2, 17, 5), (3, 20, 12), (1, 16, 1), (2, 64, 128)])
@pytest.mark.parametrize("bases", [(0, 0, 0), (4, 16, 252)])
def test_residues_are_those_of_every_step(sizes, bases):
    from sdm_runtime.qualify.operand_shapes import Sizes

    sequences, steps = sizes[0], 150
    tensors = placed(Sizes(*sizes), bases, torch.device("cpu"), steps)
    every = {
        tuple(t[ti * sequences].data_ptr() % 256 for t in tensors) for ti in reversed(range(steps))
    }
    assert set(step_residues(tensors, Sizes(*sizes))) == every
    few = placed(Sizes(*sizes), bases, torch.device("cpu"), 1)
    assert step_residues(few, Sizes(*sizes)) == (bases,)


def test_loading_a_library_is_noticed():
    before = _core.library_changes()
    assert _core.library_changes() == before
    unused = next(n for n in ("libanl.so.1", "libnss_files.so.2", "libBrokenLocale.so.1")
                  if not any(n in path for path in map_paths()))  # fmt: skip
    ctypes.CDLL(unused)
    assert _core.library_changes() != before
