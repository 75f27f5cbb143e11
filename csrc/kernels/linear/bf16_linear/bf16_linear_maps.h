// The tensor maps of a launch: what the copy engine knows of the weight and of x.
#pragma once
#include "kernels/linear/bf16_linear/bf16_linear_params.h"

namespace sdm {

// The driver's cuTensorMapEncodeTiled, as an address, so that this header needs no CUDA header.
using EncodeTensorMap = void*;

// Encodes both maps of a parameter block from its addresses, sizes, strides and tactic. Pure: asks
// the driver function for bits, and touches no device. Throws kCuda when the driver refuses.
void bf16_linear_encode_maps(EncodeTensorMap encode, Bf16LinearParams& params);

// KernelInfo::finish of bf16_linear: the same for a parameter block anywhere in memory, with maps
// of recent calls kept. Throws kCuda without a driver.
void bf16_linear_finish(void* params);

}  // namespace sdm
