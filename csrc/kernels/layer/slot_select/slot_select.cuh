// slot_select on a device.
//
// key_positions    before the wait, L1
// query_positions  before the wait, L1
// key_scores       after the wait: what the launch ahead may have written
// query_scores     after the wait
// slots, weights, norms of both sides are stored at a row's end.
#pragma once
#include "kernels/layer/slot_select/slot_select_any.cuh"
#include "kernels/layer/slot_select/slot_select_pair.cuh"
