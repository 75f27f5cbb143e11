"""Binding a CUDA plan: identity checks, and loading that never happens later."""

import pytest
from forged import STEPS, cuda_plan, fat_binary, gemm_tensors, operands, part

from sdm_runtime import CudaError, PlanError, _core

PREFERRED_SHARED_MEMORY_CARVEOUT = 9  # of CUfunction_attribute


def bind(plan, device=0):
    return plan.bind(operands(gemm_tensors(), device))


def test_the_image_is_loaded_once_when_a_plan_is_bound(driver):
    driver.log()
    bind(cuda_plan(driver.folder, "gemm_never_waits"))
    loads = driver.log("load")
    assert [load["device"] for load in loads] == [0]
    assert loads[0]["relaxed"], "loading would break a capture of another stream"
    chain = _core.Chain([bind(cuda_plan(driver.folder, "gemm_never_waits"))], STEPS)
    chain.run(driver.stream())
    assert not driver.log("load")


def test_every_device_gets_its_own_image(driver):
    bind(cuda_plan(driver.folder), 0)
    driver.log()
    bind(cuda_plan(driver.folder, device=1), 1)
    assert [load["device"] for load in driver.log("load")] == [1]


def test_a_plan_of_another_device_is_refused(driver):
    plan = cuda_plan(driver.folder, device=1)
    with pytest.raises(PlanError) as raised:
        bind(plan, 0)
    message = str(raised.value)
    assert "expected operands on the plan's device GPU-11111111-1111-" in message
    assert "got cuda:0 (Fake GPU), GPU-10101010-" in message


def test_a_plan_of_another_capability_is_refused(driver):
    plan = cuda_plan(driver.folder, capability=(8, 0))
    with pytest.raises(PlanError, match=r"compute capability 8\.0\), got .*\(9\.0\)"):
        bind(plan)


def test_a_plan_of_another_image_is_refused(driver):
    plan = cuda_plan(driver.folder, image_hash=bytes(32))
    with pytest.raises(
        PlanError, match=r"recorded with device image 0{64}, this build's gemm_waits"
    ):
        bind(plan)


def test_an_early_launch_of_a_function_without_a_wait_is_refused(driver):
    """Also when the flag was set after the plan was recorded."""
    edited = cuda_plan(driver.folder, "gemm_never_waits", flags=1)
    with pytest.raises(PlanError, match="launched programmatically, but gemm_never_waits never"):
        bind(edited)
    bind(cuda_plan(driver.folder, "gemm_never_waits"))  # the controls
    bind(cuda_plan(driver.folder, flags=1))


def test_an_unknown_function_is_refused(driver):
    plan = cuda_plan(driver.folder, entry_name=b"gone")
    with pytest.raises(CudaError, match="no device image of this build holds the function 'gone'"):
        bind(plan)


def test_a_function_with_other_parameters_is_refused(driver):
    driver.declare("wrong_parameters", 44)
    with pytest.raises(CudaError, match=r"expected the 40-byte parameters of gx_gemm, .* takes 44"):
        bind(cuda_plan(driver.folder, "wrong_parameters"))


def test_a_block_that_the_function_cannot_have_is_refused(driver):
    driver.declare("many_registers", 40, static_shared=1024, max_threads=256)
    with pytest.raises(CudaError, match=r"256 threads a block, got .* and 512"):
        bind(cuda_plan(driver.folder, "many_registers", block=(512, 1, 1)))
    with pytest.raises(CudaError, match=r"at most 232448 bytes of shared memory .* got 233024"):
        bind(cuda_plan(driver.folder, "many_registers", shared_bytes=232_000))
    bind(cuda_plan(driver.folder, "many_registers", shared_bytes=231_424))
    assert driver.log("attribute")[-1]["value"] == 231_424


def test_the_allowance_of_shared_memory_only_grows(driver):
    bind(cuda_plan(driver.folder, shared_bytes=80_000))
    driver.log()
    bind(cuda_plan(driver.folder, shared_bytes=60_000))
    assert not driver.log("attribute")


def test_a_step_kernel_asks_for_its_share_of_shared_memory_when_it_is_loaded(driver):
    driver.log()
    for _ in range(2):
        bind(cuda_plan(driver.folder, "loaded_once"))
    asked = [(call["which"], call["value"]) for call in driver.log("attribute")]
    assert asked == [(PREFERRED_SHARED_MEMORY_CARVEOUT, 58)]


def test_a_changed_image_file_is_refused(driver):
    path = driver.folder / "only_newest.fatbin"
    image = path.read_bytes()
    plan = cuda_plan(driver.folder, "only_newest")
    path.write_bytes(fat_binary(part(2, 90, b"another!")))
    try:
        with pytest.raises(CudaError, match="it belongs to another build than the extension"):
            bind(plan)
        path.unlink()
        with pytest.raises(CudaError, match="cannot be opened"):
            bind(plan)
    finally:
        path.write_bytes(image)
    bind(plan)


def test_a_failed_load_is_an_error_and_is_tried_again(driver):
    plan = cuda_plan(driver.folder, device=6)
    driver.fail("cuLibraryLoadData", 2)
    with pytest.raises(CudaError, match=r"cuLibraryLoadData: CUDA_ERROR_OUT_OF_MEMORY \(2\)"):
        bind(plan, 6)
    bind(plan, 6)
