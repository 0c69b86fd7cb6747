// What is learnt from about matrices of costs, in dense sweeps: the smallest costs of rows and columns after a
// potential of the columns is taken off, and the softened minima of one pass over rows and columns (Sinkhorn's, in
// place).
#pragma once
#include <cstdint>

namespace graphmill {

constexpr int kMostNearest = 8;

struct CostMatrices {  // [batch, rows, columns]; infinity: an absent pair
  const void* data;
  bool is_double;
  const double* offsets;  // [batch, rows]: taken off each row first, or null
  int64_t batch, rows, columns;
};

// With x = cost - offset and y = x - v: the `count` smallest y of each row with their columns, equal ones by column
// (infinity and -1 where a row has fewer), and, unless `column_values` is null, the `count` smallest y - u of each
// column, u being the smallest y of the row. Rows without any pair are left out of the columns.
void nearest_costs(const CostMatrices& costs, const float* v, int count, float* row_values, int32_t* row_columns,
                   float* column_values, int num_threads);

// u_i -= epsilon log sum_j e_ij, and column_sums_j = sum_i e_ij / sum_j e_ij, where e_ij = exp(-(x_ij - v_j - u_i) /
// epsilon) with the u that is given. Rows whose u is infinite are left out. `epsilon` [batch].
void soften_costs(const CostMatrices& costs, const float* v, const float* epsilon, float* u, float* column_sums,
                  int num_threads);

// The smallest cost of each row, [batch, rows].
void row_minima(const CostMatrices& costs, double* minima, int num_threads);

// cost - offset in float32, [batch, rows, columns].
void reduce_costs(const CostMatrices& costs, float* out, int num_threads);

}  // namespace graphmill
