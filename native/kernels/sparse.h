// Sparse products, of one thread's rows.
#pragma once
#include <cstdint>

#include "strided.h"

namespace graphmill {

struct SparseRows {  // compressed sparse rows
  const int64_t* indptr;
  const int32_t* indices;
  const float* values;
  int64_t num_rows;
};

struct SparseKernels {
  int strip_columns;  // that combine_rows sums in registers at once

  // out[r] = start[r] + the sum of values[e] * in[indices[e]] over e in [indptr[r], indptr[r + 1]); rows of n floats; a
  // null `start` is zero, and `start` may be `out`.
  void (*combine_rows)(const SparseRows& matrix, StridedRows out, ConstStridedRows in, ConstStridedRows start,
                       int64_t n);
  // The gradient through dropout(relu(.)), where `out`, its result, is positive or NaN; elsewhere it is 0. By column:
  // entries [starts[c], starts[c + 1]) of column c hold a row of g [num_rows, n] and its value there times `scale`,
  // rows ascending. sums[n] += the values. `rows` and `values` have room for num_rows * n.
  void (*collect_kept)(int64_t* starts, int32_t* rows, float* values, const float* g, const float* out, float scale,
                       int64_t num_rows, int64_t n, float* sums);
};

}  // namespace graphmill
