// Inner loops, compiled once per instruction set and chosen at start (isa.cpp). Each works on one thread's share.
#pragma once
#include <cstdint>

#include "assignment_features.h"
#include "assignment_kernels.h"
#include "attention.h"
#include "ranking_kernels.h"

namespace graphmill {

enum class RowType : int { kFloat32, kFloat16, kBfloat16 };

// What happens to a row of the product before it is stored: out = dropout(relu(acc + bias)).
struct Epilogue {
  const float* bias;         // [n], or null
  const uint64_t* row_keys;  // [m]: key of each row's dropout draws, or null for none
  uint32_t threshold;        // a value is dropped if its 32-bit draw is below this
  float scale;               // 1 / (1 - p)
  bool relu;
};

constexpr int64_t kDrawsPerBlock = 8;

struct StridedRows {
  float* data;
  int64_t stride;
};

struct ConstStridedRows {
  const float* data;
  int64_t stride;
};

struct SparseRows {  // compressed sparse rows
  const int64_t* indptr;
  const int32_t* indices;
  const float* values;
  int64_t num_rows;
};

struct Kernels {
  const char* name;
  int tile_rows;      // rows of a micro-tile of the products below
  int tile_columns;   // columns of a micro-tile
  int strip_columns;  // columns that combine_rows sums in registers at once

  // drawn[i] = draw_below(key, i, first_bound + i), the draws of Floyd's algorithm; all bounds below 2^32. Whole blocks
  // are written: `drawn` has room for `count` rounded up to a multiple of kDrawsPerBlock.
  void (*draw_below_each)(uint64_t key, uint64_t first_bound, int64_t count, uint32_t* drawn);

  // sum[f] += rows[ids[i] * id_step + f] for every i: rows of `type`, accumulated in float32.
  void (*add_rows)(float* sum, const void* rows, RowType type, int64_t id_step, const int64_t* ids, int64_t num_ids,
                   int64_t num_columns);
  // out[f] = in[f] * factor, stored as float32 or bfloat16.
  void (*store_row)(void* out, RowType type, const float* in, float factor, int64_t num_columns);
  // out[f] = row[f] in another number format.
  void (*convert_row)(void* out, RowType out_type, const void* row, RowType type, int64_t num_columns);
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

  // w [n, k] row-major → panels of tile_columns columns: packed[panel][k][tile_columns], zero-padded.
  void (*pack_weights)(float* packed, const float* w, int64_t n, int64_t k);
  // c [m, n] = epilogue(a [m, k] · wᵀ), w as packed above; a's rows begin `a_stride` floats apart.
  void (*multiply)(float* c, const float* a, int64_t a_stride, const float* packed, int64_t m, int64_t n, int64_t k,
                   int64_t first_row, const Epilogue& epilogue);
  // g [m, n] rows [begin, end) → packed[panel of tile_rows columns][row][tile_rows], zero-padded. sums[n] += the rows.
  // `line` holds n + tile_rows floats.
  void (*pack_gradients)(float* packed, const float* g, int64_t begin, int64_t end, int64_t n, float* sums,
                         float* line);
  // dw [n, k] columns [column, column + tile_columns) += gᵀ · a over rows [begin, end), g packed as above; a's rows
  // begin `a_stride` floats apart. `scratch` holds (end - begin) * tile_columns floats.
  void (*add_outer)(float* dw, const float* packed_g, const float* a, int64_t a_stride, int64_t begin, int64_t end,
                    int64_t n, int64_t k, int64_t column, float* scratch);

  // The gradient through dropout(relu(.)), where `out`, its result, is positive or NaN; elsewhere it is 0. By column:
  // entries [starts[c], starts[c + 1]) of column c hold a row of g [num_rows, n] and its value there times `scale`,
  // rows ascending. sums[n] += the values. `rows` and `values` have room for num_rows * n.
  void (*collect_kept)(int64_t* starts, int32_t* rows, float* values, const float* g, const float* out, float scale,
                       int64_t num_rows, int64_t n, float* sums);
  // out[r] = start[r] + the sum of values[e] * in[indices[e]] over e in [indptr[r], indptr[r + 1]); rows of n floats; a
  // null `start` is zero, and `start` may be `out`.
  void (*combine_rows)(const SparseRows& matrix, StridedRows out, ConstStridedRows in, ConstStridedRows start,
                       int64_t n);
  // The elementwise halves of a gated recurrent unit, `m` rows of `units` each; see dcgru.h for the letters.
  void (*gru_reset)(float* gates, const float* h, StridedRows reset_h, int64_t m, int64_t units, bool activate);
  void (*gru_update)(float* candidate, const float* gates, const float* h, float* new_h, int64_t m, int64_t units);
  void (*gru_update_backward)(const float* grad_new, const float* gates, const float* candidate, const float* h,
                              float* grad_before, float* grad_h, int64_t m, int64_t units);
  void (*gru_reset_backward)(const float* grad_reset_h, const float* gates, const float* h, float* grad_before,
                             float* grad_h, int64_t m, int64_t units);
  AttentionKernels<float> attention;
  AttentionKernels<double> attention_double;
  AssignmentKernels<float, double> assignment_float;
  AssignmentKernels<double, double> assignment_double;
  AssignmentKernels<int64_t, int64_t> assignment_int64;
  AssignmentFeatureKernels assignment_features;
  RankingKernels ranking;
};

// The best that this processor runs; GRAPHMILL_ISA=generic|avx2|avx512 asks for one.
const Kernels& kernels();

}  // namespace graphmill
