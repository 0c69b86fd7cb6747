// Gates of a recurrent unit.
#pragma once
#include <cstdint>

#include "strided.h"

namespace graphmill {

struct RecurrentKernels {
  // The elementwise halves of a gated recurrent unit, `m` rows of `units` each; see ../dcgru.h for the letters.
  void (*reset)(float* gates, const float* h, StridedRows reset_h, int64_t m, int64_t units, bool activate);
  void (*update)(float* candidate, const float* gates, const float* h, float* new_h, int64_t m, int64_t units);
  void (*update_backward)(const float* grad_new, const float* gates, const float* candidate, const float* h,
                          float* grad_before, float* grad_h, int64_t m, int64_t units);
  void (*reset_backward)(const float* grad_reset_h, const float* gates, const float* h, float* grad_before,
                         float* grad_h, int64_t m, int64_t units);
};

}  // namespace graphmill
