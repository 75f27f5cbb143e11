// The tensor maps of a launch: what the copy engine knows of the weight and of x.
#pragma once
#include "kernels/linear/bf16_linear/bf16_linear_params.h"

namespace sdm {

// The driver's cuTensorMapEncodeTiled, as an address, so that this header needs no CUDA header.
using EncodeTensorMap = void*;

// The driver's function; null in a host-only build.
EncodeTensorMap bf16_linear_encode_function();

// Encodes the map of a [rows, columns] bf16 matrix that is read in boxes of [box_rows, 64]; what
// lies outside arrives as zeros. Pure: asks the driver function for bits, and touches no device.
// Throws kCuda when the driver refuses, with both names in the message.
void bf16_linear_encode_matrix(EncodeTensorMap encode, const char* where, const char* operand,
                               TensorMapBytes& map, const uint16_t* address, int64_t rows,
                               int64_t columns, int64_t row_stride, int32_t box_rows);

// Encodes both maps of a parameter block from its addresses, sizes, strides and tactic, as
// bf16_linear_encode_matrix does.
void bf16_linear_encode_maps(EncodeTensorMap encode, Bf16LinearParams& params);

// KernelInfo::finish of bf16_linear: the same for a parameter block anywhere in memory, with maps
// of recent calls kept. Throws kCuda without a driver.
void bf16_linear_finish(void* params);

}  // namespace sdm
