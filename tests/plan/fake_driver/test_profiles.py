"""Device profiles: what is supported, and running as another device for tests."""

import pytest
from forged import PTX, STEPS, cuda_plan, gemm_tensors, operands

from sdm_runtime import CudaError, _core

# Devices that no other test here touches: a device keeps the profile of its first use.
FORCED, A100 = 6, 7


def bind(driver, device, capability, entry="gemm_waits"):
    plan = cuda_plan(driver.folder, entry, device=device, capability=capability)
    return plan.bind(operands(gemm_tensors(), device))


@pytest.mark.parametrize(("device", "capability"), [(0, (9, 0)), (2, (8, 0)), (3, (8, 9))])
def test_a_supported_device_loads_the_whole_image(driver, device, capability):
    bind(driver, device, capability)
    assert len(driver.log("load")[-1]["parts"]) == 4


@pytest.mark.parametrize(
    ("device", "given"), [(4, "got 7.5 with 65536"), (5, "got 9.0 with 101376")]
)
def test_another_device_is_refused_naming_what_is_supported(driver, device, given):
    with pytest.raises(CudaError) as raised:
        bind(driver, device, (9, 0))
    message = str(raised.value)
    for profile in ("9.0 (modern, 232448", "8.0 (a100, 166912", "8.6 (rtx, 101376", given):
        assert profile in message


def test_no_such_device(driver):
    with pytest.raises(CudaError, match=r"cuda:8: cuDeviceGet: .* \(101\)"):
        bind(driver, 8, (9, 0))


def test_a_forced_profile_is_given_the_portable_code_alone(driver, monkeypatch):
    monkeypatch.setenv("SDM_DEVICE_PROFILE", "a100")
    bound = bind(driver, FORCED, (8, 0))
    assert driver.log("load")[-1]["parts"] == [[PTX, 80]]
    _core.Chain([bound], STEPS).run(driver.stream(FORCED))
    assert len(driver.log("launch")) == STEPS
    with pytest.raises(CudaError, match=r"only_newest\.fatbin: holds no PTX for capability 80"):
        bind(driver, FORCED, (8, 0), "only_newest")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("modren", "expected modern, a100 or rtx, got 'modren'"),
        ("modern", "a GPU of profile a100 cannot run as modern"),
    ],
)
def test_a_profile_that_cannot_be_forced(driver, monkeypatch, name, message):
    monkeypatch.setenv("SDM_DEVICE_PROFILE", name)
    with pytest.raises(CudaError, match=message):
        bind(driver, A100, (8, 0))
