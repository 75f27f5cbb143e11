// Where a token's row of v, or of the readings, stands in [B, T, H, hd].
#pragma once
#include "kernels/layer/decode_step/decode_step_params.h"

namespace sdm {

struct HeadStrides {
  int64_t batch, token, head;  // elements

  // Of sequence p = b*H + h.
  SDM_HD int64_t row(int32_t sequence, int32_t heads, int32_t at_token) const {
    const int32_t b = sequence / heads;
    return b * batch + at_token * token + (sequence - b * heads) * head;
  }
};

SDM_HD HeadStrides v_strides(const DecodeStepParams& params) {
  return {params.v_batch, params.v_token, params.v_head};
}
SDM_HD HeadStrides readings_strides(const DecodeStepParams& params) {
  return {params.readings_batch, params.readings_token, params.readings_head};
}

}  // namespace sdm
