"""The speed rule says what was measured, and nothing about what was not."""

import pytest

from sdm_runtime.qualify.speed_rule import MEASURED, gx_gemm_is_faster


@pytest.mark.parametrize("row", MEASURED, ids=str)
def test_measured_shapes_are_as_measured(row):
    picked = gx_gemm_is_faster(row.sequences, row.chunk, row.head_dim, row.sm_count)
    assert picked == (row.gx_gemm_us < row.library_us)


def test_smaller_shapes_are_picked_and_larger_ones_are_not():
    assert gx_gemm_is_faster(2, 16, 64, 132)
    assert gx_gemm_is_faster(8, 128, 1024, 132)
    assert not gx_gemm_is_faster(16, 256, 1024, 132)
    assert not gx_gemm_is_faster(1, 512, 64, 132)


def test_fewer_multiprocessors_have_more_work_each():
    assert gx_gemm_is_faster(8, 256, 1024, 132)
    assert not gx_gemm_is_faster(8, 256, 1024, 108)
    assert gx_gemm_is_faster(2, 64, 128, 16)


@pytest.mark.parametrize(("chunk", "hd"), [(17, 64), (64, 77), (16, 1)])
def test_unmeasured_kernels_are_not_picked(chunk, hd):
    assert not gx_gemm_is_faster(1, chunk, hd, 132)
