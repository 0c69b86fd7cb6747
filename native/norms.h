// relu(batch norm) of a batch of rows, and its gradients: Ioffe and Szegedy 2015 (arXiv 1502.03167).
#pragma once
#include <cstdint>

namespace graphmill {

struct NormedRows {  // row-major [num_rows, n], float32
  const float* x;
  int64_t num_rows, n;
};

// mean [n] and variance [n] (biased) of the columns, and out = relu((x - mean) / sqrt(variance + eps) * weight + bias).
void norm_relu(const NormedRows& rows, const float* weight, const float* bias, float eps, float* mean, float* variance,
               float* out, int num_threads);

// Gradients of x [num_rows, n], of weight and of bias [n], from that of `out`.
void norm_relu_backward(const NormedRows& rows, const float* weight, float eps, const float* mean,
                        const float* variance, const float* out, const float* grad_out, float* grad_x,
                        float* grad_weight, float* grad_bias, int num_threads);

}  // namespace graphmill
