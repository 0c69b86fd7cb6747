// Columns of a batch of rows: their moments, and what batch norm with a rectifier makes of them.
#pragma once
#include <cstdint>

namespace graphmill {

struct NormKernels {
  // mean[f] of the rows, and squares[f]: the sum of squared distances from it.
  void (*moments)(float* mean, float* squares, const float* x, int64_t num_rows, int64_t n);
  // out = relu(x * scale[f] + shift[f]).
  void (*scale_relu)(float* out, const float* x, const float* scale, const float* shift, int64_t num_rows, int64_t n);
  // With g = out <= 0 ? 0 : grad: sums[f] of g, and products[f] of g * (x - mean[f]).
  void (*gradient_sums)(float* sums, float* products, const float* grad, const float* out, const float* x,
                        const float* mean, int64_t num_rows, int64_t n);
  // grad_x = g * scale[f] + (x - mean[f]) * slope[f] + shift[f].
  void (*gradient)(float* grad_x, const float* grad, const float* out, const float* x, const float* mean,
                   const float* scale, const float* slope, const float* shift, int64_t num_rows, int64_t n);
};

}  // namespace graphmill
