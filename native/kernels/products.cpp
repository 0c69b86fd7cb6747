// Dense matrix products.
//
// Register-tiled in the manner of Goto & van de Geijn 2008 ("Anatomy of high-performance matrix multiplication"): the
// tile of the result stays in registers for the whole inner loop. Every value is summed in one fixed order, so the
// result does not depend on the number of threads.
#include "products.h"

#include <cstdint>
#include <cstring>

#include "dropout.h"
#include "vectors.h"

namespace graphmill {
namespace {

constexpr int64_t kRowsAhead = 12;  // strided rows that are fetched ahead of their use

void pack_weights(float* packed, const float* w, int64_t n, int64_t k) {
  for (int64_t first = 0; first < n; first += kTileColumns, packed += k * kTileColumns)
    for (int64_t j = 0; j < kTileColumns; ++j)
      for (int64_t i = 0; i < k; ++i) packed[i * kTileColumns + j] = first + j < n ? w[(first + j) * k + i] : 0.0f;
}

template <int Rows>
inline void tile(V (&acc)[kTileRows][kTileVectors], const float* a, int64_t row_stride, int64_t step, const float* b,
                 int64_t k) {
  for (int64_t i = 0; i < k; ++i, b += kTileColumns, a += step) {
    V right[kTileVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) right[v] = load(b + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      const V left = splat(a[r * row_stride]);
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) acc[r][v] += left * right[v];
    }
  }
}

inline void finish_row(float* c, const V (&acc)[kTileVectors], int64_t row, int64_t column, int64_t n,
                       const Epilogue& epilogue) {
  float line[kTileColumns];
  const int64_t width = n - column < kTileColumns ? n - column : kTileColumns;
  for (int v = 0; v < kTileVectors; ++v) {
    V value = acc[v];
    const int64_t first = column + v * kLanes;
    if (epilogue.bias) {
      if (first + kLanes <= n) {
        value += load(epilogue.bias + first);
      } else {
        for (int i = 0; first + i < n; ++i) value[i] += epilogue.bias[first + i];
      }
    }
    if (epilogue.relu) value = positive(value);
    if (epilogue.row_keys)
      value = keep(value, column_numbers(first), epilogue.row_keys[row], epilogue.threshold, epilogue.scale);
    if (width == kTileColumns) store(c + v * kLanes, value);
    else store(line + v * kLanes, value);
  }
  if (width < kTileColumns) memcpy(c, line, width * 4);
}

template <int Rows>
void multiply_tile(float* c, const float* a, int64_t a_stride, const float* packed, int64_t row, int64_t column,
                   int64_t n, int64_t k, int64_t first_row, const Epilogue& epilogue) {
  V acc[kTileRows][kTileVectors] = {};
  tile<Rows>(acc, a + row * a_stride, a_stride, 1, packed + column * k, k);
  for (int r = 0; r < Rows; ++r)
    finish_row(c + (row + r) * n + column, acc[r], first_row + row + r, column, n, epilogue);
}

void multiply(float* c, const float* a, int64_t a_stride, const float* packed, int64_t m, int64_t n, int64_t k,
              int64_t first_row, const Epilogue& epilogue) {
  for (int64_t column = 0; column < n; column += kTileColumns) {
    int64_t row = 0;
    for (; row + kTileRows <= m; row += kTileRows)
      multiply_tile<kTileRows>(c, a, a_stride, packed, row, column, n, k, first_row, epilogue);
    // What is left in few pieces: each reads the weights again, which a small graph waits for.
    for (; row + kTileRows / 2 <= m; row += kTileRows / 2)
      multiply_tile<kTileRows / 2>(c, a, a_stride, packed, row, column, n, k, first_row, epilogue);
    for (; row + 2 <= m; row += 2) multiply_tile<2>(c, a, a_stride, packed, row, column, n, k, first_row, epilogue);
    for (; row < m; ++row) multiply_tile<1>(c, a, a_stride, packed, row, column, n, k, first_row, epilogue);
  }
}

void pack_gradients(float* packed, const float* g, int64_t begin, int64_t end, int64_t n, float* sums, float* line) {
  const int64_t panel_stride = (end - begin) * kTileRows;
  for (int64_t i = 0; i < kTileRows; ++i) line[n + i] = 0;
  for (int64_t row = begin; row < end; ++row) {
    memcpy(line, g + row * n, n * 4);
    add_scaled(sums, line, 1.0f, n);
    float* to = packed + (row - begin) * kTileRows;
    for (int64_t first = 0; first < n; first += kTileRows, to += panel_stride) memcpy(to, line + first, kTileRows * 4);
  }
}

void add_outer(float* dw, const float* packed_g, const float* a, int64_t a_stride, int64_t begin, int64_t end,
               int64_t n, int64_t k, int64_t column, float* scratch) {
  const int64_t num_rows = end - begin, width = k - column < kTileColumns ? k - column : kTileColumns;
  for (int64_t i = 0; i < num_rows; ++i) {
    float* line = scratch + i * kTileColumns;
    const float* from = a + (begin + i) * a_stride + column;
    if (i + kRowsAhead < num_rows) {  // rows are far apart: the hardware does not detect the pattern
      for (int64_t f = 0; f < width; f += 16) __builtin_prefetch(from + kRowsAhead * a_stride + f);
      __builtin_prefetch(from + kRowsAhead * a_stride + width - 1);
    }
    if (width == kTileColumns) {
      for (int v = 0; v < kTileVectors; ++v) store(line + v * kLanes, load(from + v * kLanes));
    } else {
      memset(line, 0, kTileColumns * 4);
      memcpy(line, from, width * 4);
    }
  }
  for (int64_t first = 0; first < n; first += kTileRows, packed_g += num_rows * kTileRows) {
    V acc[kTileRows][kTileVectors] = {};
    tile<kTileRows>(acc, packed_g, 1, kTileRows, scratch, num_rows);
    for (int64_t r = 0; r < kTileRows && first + r < n; ++r) {
      float* to = dw + (first + r) * k + column;
      float line[kTileColumns];
      for (int v = 0; v < kTileVectors; ++v) store(line + v * kLanes, acc[r][v]);
      if (width == kTileColumns) {
        for (int v = 0; v < kTileVectors; ++v) store(to + v * kLanes, load(to + v * kLanes) + load(line + v * kLanes));
      } else {
        for (int64_t i = 0; i < width; ++i) to[i] += line[i];
      }
    }
  }
}

}  // namespace

namespace GRAPHMILL_ISA {

extern const ProductKernels products;
const ProductKernels products = {
    kTileRows, kTileColumns, pack_weights, multiply, pack_gradients, add_outer,
};

}  // namespace GRAPHMILL_ISA
}  // namespace graphmill
