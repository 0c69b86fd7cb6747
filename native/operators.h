// Operators over whole matrices: the kernels of one thread's share, spread over threads.
// Each result is a function of its inputs alone: the number of threads never changes a bit.
#pragma once
#include <cstdint>

#include "kernels.h"

namespace graphmill {

struct Matrix {  // row-major, any row type
  const void* data;
  RowType type;
  int64_t num_rows, num_columns;
  int64_t id_step = num_columns;  // elements from a row to that of the next id; 1: ids count elements, not rows
};

struct Segments {  // compressed sparse rows of local ids
  const int64_t* indptr;
  const int32_t* indices;
  int64_t num_rows;
};

using SparseMatrix = SparseRows;

// out[i] = table[ids[i]].
void gather_rows(const Matrix& table, const int64_t* ids, int64_t num_ids, void* out, RowType out_type,
                 int num_threads);

// out[r] = [table[row_ids[r]], mean of table[ids[c]] over c in segment r]; the mean of nothing is 0. Null row_ids: r
// itself; null ids: c itself.
void gather_self_and_mean(const Matrix& table, const int64_t* row_ids, const int64_t* ids, const Segments& segments,
                          void* out, RowType out_type, int num_threads);

// out[i] = row ids[i] of `table`; out.indptr is given, and says how long each row is.
void gather_sparse_rows(const SparseMatrix& table, const int64_t* ids, int64_t num_ids, const int64_t* out_indptr,
                        int32_t* out_indices, float* out_values, int num_threads);

// out[r] = mean of x[c] over c in segment r.
void segment_mean(const float* x, int64_t num_columns, const Segments& segments, float* out, int num_threads);
void segment_mean_backward(const float* grad_out, int64_t num_columns, const Segments& segments, float* grad_x,
                           int64_t num_x_rows, int num_threads);
// The backward of gather_self_and_mean without ids: grad_out [num_rows, 2 * num_columns].
void self_and_mean_backward(const float* grad_out, int64_t num_columns, const Segments& segments, float* grad_x,
                            int64_t num_x_rows, int num_threads);

// out[r] = scale * x[r] + the sum of x[c] over c in segment r.
void self_and_sum(const float* x, float scale, int64_t num_columns, const Segments& segments, float* out,
                  int num_threads);
void self_and_sum_backward(const float* grad_out, float scale, int64_t num_columns, const Segments& segments,
                           float* grad_x, int64_t num_x_rows, int num_threads);

// out = x · w for sparse x; w [num_features, n].
void sparse_multiply(const SparseMatrix& x, const float* w, int64_t n, float* out, int num_threads);
void sparse_multiply_backward(const SparseMatrix& x, const float* grad_out, int64_t n, float* grad_w,
                              int64_t num_features, int num_threads);

// out [m, n] = epilogue(a [m, k] · w [n, k]ᵀ).
void linear(const float* a, int64_t m, int64_t k, const float* w, int64_t n, const Epilogue& epilogue, float* out,
            int num_threads);
// dw [n, k] = gᵀ · a [m, k] and db [n] = the sum of g's rows, where g [m, n] is grad_out after the backward of
// dropout(relu(.)) if `out`, its result, is given, and grad_out itself if it is null.
void linear_backward(const float* grad_out, const float* out, float scale, const float* a, int64_t m, int64_t n,
                     int64_t k, float* dw, float* db, int num_threads);

// Around products [m, n] in bfloat16, which are torch's: out = epilogue(product), and narrow = g as above, rounded.
void finish(const uint16_t* product, int64_t m, int64_t n, const Epilogue& epilogue, float* out, int num_threads);
void narrow_gradient(const float* grad_out, const float* out, float scale, int64_t m, int64_t n, uint16_t* narrow,
                     float* db, int num_threads);

void relu_dropout(const float* in, int64_t m, int64_t n, const uint64_t* row_keys, uint32_t threshold, float scale,
                  float* out, int num_threads);
void relu_dropout_backward(const float* grad_out, const float* out, int64_t count, float scale, float* grad_in,
                           int num_threads);

}  // namespace graphmill
