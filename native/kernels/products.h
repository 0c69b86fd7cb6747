// Dense products, of one thread's rows.
#pragma once
#include <cstdint>

namespace graphmill {

// What happens to a row of the product before it is stored: out = dropout(relu(acc + bias)).
struct Epilogue {
  const float* bias;         // [n], or null
  const uint64_t* row_keys;  // [m]: key of each row's dropout draws, or null for none
  uint32_t threshold;        // a value is dropped if its 32-bit draw is below this
  float scale;               // 1 / (1 - p)
  bool relu;
};

struct ProductKernels {
  int tile_rows;     // of a tile of results that registers hold
  int tile_columns;  // of it

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
};

}  // namespace graphmill
