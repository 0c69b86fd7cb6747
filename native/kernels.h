// Inner loops, compiled once per instruction set and chosen at start (isa.cpp). Each works on one thread's share.
#pragma once
#include <cstdint>

namespace graphmill {

enum class RowType : int { kFloat32, kFloat16, kBfloat16 };

// What happens to a row of the product before it is stored: out = dropout(relu(acc + bias)).
struct Epilogue {
  const float* bias;        // [n], or null
  const uint64_t* row_keys; // [m]: key of each row's dropout draws, or null for none
  uint32_t threshold;       // a value is dropped where its 32-bit draw is below this
  float scale;              // 1 / (1 - p)
  bool relu;
};

constexpr int64_t kDrawsPerBlock = 8;

struct Kernels {
  const char* name;
  int tile_rows;     // rows of a micro-tile of the products below
  int tile_columns;  // columns of a micro-tile

  // drawn[i] = draw_below(key, i, first_bound + i), the draws of Floyd's algorithm; all bounds below 2^32. Whole blocks are
  // written: `drawn` has room for `count` rounded up to a multiple of kDrawsPerBlock.
  void (*draw_below_each)(uint64_t key, uint64_t first_bound, int64_t count, uint32_t* drawn);

  // sum[f] += rows[ids[i]][f] for every i: rows of `type`, accumulated in float32.
  void (*add_rows)(float* sum, const void* rows, RowType type, const int64_t* ids, int64_t num_ids, int64_t num_columns);
  // out[f] = in[f] * factor, stored as float32 or bfloat16.
  void (*store_row)(void* out, RowType type, const float* in, float factor, int64_t num_columns);
  // out[f] = row[f] in another number format.
  void (*convert_row)(void* out, RowType out_type, const void* row, RowType type, int64_t num_columns);
  // sum[f] += factor * row[f].
  void (*add_scaled)(float* sum, const float* row, float factor, int64_t num_columns);
  // out = dropout(relu(in)), one row.
  void (*relu_dropout)(float* out, const float* in, uint64_t key, uint32_t threshold, float scale, int64_t num_columns);
  // grad_in = out > 0 ? grad_out * scale : 0.
  void (*relu_dropout_backward)(float* grad_in, const float* grad_out, const float* out, float scale, int64_t count);

  // w [n, k] row-major → panels of tile_columns columns: packed[panel][k][tile_columns], zero-padded.
  void (*pack_weights)(float* packed, const float* w, int64_t n, int64_t k);
  // c [m, n] = epilogue(a [m, k] · wᵀ), w as packed above.
  void (*multiply)(float* c, const float* a, const float* packed, int64_t m, int64_t n, int64_t k, int64_t first_row,
                   const Epilogue& epilogue);
  // g [m, n] rows [begin, end) → packed[panel of tile_rows columns][row][tile_rows], zero-padded, each value behind the
  // backward of dropout(relu(.)) where `out`, its result, is given. sums[n] += the rows. `line` holds n + tile_rows floats.
  void (*pack_gradients)(float* packed, const float* g, const float* out, float scale, int64_t begin, int64_t end, int64_t n,
                         float* sums, float* line);
  // dw [n, k] columns [column, column + tile_columns) += gᵀ · a over rows [begin, end), g packed as above.
  // `scratch` holds (end - begin) * tile_columns floats.
  void (*add_outer)(float* dw, const float* packed_g, const float* a, int64_t begin, int64_t end, int64_t n, int64_t k,
                    int64_t column, float* scratch);
};

// The best that this processor runs; GRAPHMILL_ISA=generic|avx2|avx512 asks for one.
const Kernels& kernels();

}  // namespace graphmill
