// Rows of features, one at a time.
#pragma once
#include <cstdint>

#include "products.h"

namespace graphmill {

enum class RowType : int { kFloat32, kFloat16, kBfloat16 };

struct RowKernels {
  // sum[f] += rows[ids[i] * id_step + f] for every i: rows of `type`, accumulated in float32.
  void (*add)(float* sum, const void* rows, RowType type, int64_t id_step, const int64_t* ids, int64_t num_ids,
              int64_t num_columns);
  // out[f] = in[f] * factor, stored as float32 or bfloat16.
  void (*store)(void* out, RowType type, const float* in, float factor, int64_t num_columns);
  // out[f] = row[f] in another number format.
  void (*convert)(void* out, RowType out_type, const void* row, RowType type, int64_t num_columns);
  // sum[f] += factor * row[f].
  void (*add_scaled)(float* sum, const float* row, float factor, int64_t num_columns);
  // out[h] = <a[h], b[h]> for rows of heads * channels floats.
  void (*dot_heads)(float* out, const float* a, const float* b, int64_t heads, int64_t channels);
  // sum[h] += row[h] * factors[h], rows likewise.
  void (*add_heads)(float* sum, const float* row, const float* factors, int64_t heads, int64_t channels);
  // out = dropout(relu(in)), one row.
  void (*relu_dropout)(float* out, const float* in, uint64_t key, uint32_t threshold, float scale, int64_t num_columns);
  // grad_in = out <= 0 ? 0 : grad_out * scale; where out is NaN the gradient passes.
  void (*relu_dropout_backward)(float* grad_in, const float* grad_out, const float* out, float scale, int64_t count);
  // out = epilogue(product) of row `row` of a product in bfloat16.
  void (*finish)(float* out, const uint16_t* product, int64_t row, const Epilogue& epilogue, int64_t num_columns);
  // out = grad rounded to bfloat16, after relu_dropout_backward if `activated` is not null; sum += it, not rounded.
  void (*narrow_gradient)(uint16_t* out, float* sum, const float* grad, const float* activated, float scale,
                          int64_t num_columns);
};

}  // namespace graphmill
