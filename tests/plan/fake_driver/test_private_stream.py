"""Streams of our own, for captures that nothing else may get into."""

import gc

import pytest

from sdm_runtime import CudaError, _core

NON_BLOCKING = 1


def test_a_stream_is_nobody_elses_until_it_comes_back(driver):
    held = [_core.PrivateStream(device) for device in (0, 0, 0, 1)]
    handles = [stream.handle() for stream in held]
    assert len(set(handles)) == 4
    assert not {driver.stream(0), driver.stream(1), 0} & set(handles)
    made = driver.log("stream")
    assert made
    assert all(entry["flags"] == NON_BLOCKING and entry["relaxed"] for entry in made)
    last = handles[2]
    del held[2]
    gc.collect()
    again = _core.PrivateStream(0)
    assert again.handle() == last
    assert driver.log("stream") == []  # streams live as long as the process
    assert _core.PrivateStream(0).handle() not in handles


def test_a_stream_that_cannot_be_made(driver):
    held = []
    while not driver.log("stream"):  # those that are idle come first
        held.append(_core.PrivateStream(1))
    driver.fail("cuStreamCreate", 2)
    with pytest.raises(CudaError, match="cuStreamCreate: CUDA_ERROR_OUT_OF_MEMORY"):
        _core.PrivateStream(1)
    held.append(_core.PrivateStream(1))
    assert len({stream.handle() for stream in held}) == len(held)
