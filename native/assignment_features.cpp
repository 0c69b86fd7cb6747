#include "assignment_features.h"

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "kernels.h"
#include "pool.h"

namespace graphmill {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

const AssignmentFeatureKernels& row_kernels() { return kernels().assignment_features; }

double offset_of(const CostMatrices& costs, int64_t row) { return costs.offsets ? costs.offsets[row] : 0.0; }

// Row `row` of all [batch * rows], less its offset: in `line`, or where it lies if it is as it should be.
const float* reduced(const CostMatrices& costs, int64_t row, float* line) {
  const int64_t n = costs.columns;
  if (costs.is_double) {
    row_kernels().reduce(line, static_cast<const double*>(costs.data) + row * n, offset_of(costs, row), n);
    return line;
  }
  const float* stored = static_cast<const float*>(costs.data) + row * n;
  if (!costs.offsets) return stored;
  row_kernels().reduce_float(line, stored, static_cast<float>(costs.offsets[row]), n);
  return line;
}

int width_of(int count) { return count <= 2 ? count : count <= 4 ? 4 : 8; }

void nearest_of_one(const CostMatrices& costs, int64_t which, const float* v, int count, float* row_values,
                    int32_t* row_columns, float* column_values) {
  const int64_t n = costs.columns;
  const int width = width_of(count);
  std::vector<float> line(n), y(n), best(column_values ? width * n : 0, kInfinity);
  for (int64_t row = which * costs.rows; row < (which + 1) * costs.rows; ++row) {
    float* values = row_values + row * count;
    const float* x = reduced(costs, row, line.data());
    row_kernels().nearest(x, v + which * n, n, count, y.data(), values, row_columns + row * count);
    if (column_values && values[0] < kInfinity) row_kernels().keep_smallest(y.data(), values[0], n, width, best.data());
  }
  if (!column_values) return;
  for (int64_t j = 0; j < n; ++j)
    for (int l = 0; l < count; ++l) column_values[(which * n + j) * count + l] = best[l * n + j];
}

void soften_one(const CostMatrices& costs, int64_t which, const float* v, float epsilon, float* u, float* column_sums) {
  const int64_t n = costs.columns;
  std::vector<float> line(n), e(n);
  float* sums = column_sums + which * n;
  for (int64_t j = 0; j < n; ++j) sums[j] = 0;
  for (int64_t row = which * costs.rows; row < (which + 1) * costs.rows; ++row) {
    if (!(u[row] < kInfinity)) continue;
    const float* x = reduced(costs, row, line.data());
    const float sum = row_kernels().soften(x, v + which * n, u[row], 1.0f / epsilon, n, e.data());
    if (!(sum > 0)) continue;  // every pair is too far away: the row keeps its u
    kernels().rows.add_scaled(sums, e.data(), 1.0f / sum, n);
    u[row] -= epsilon * std::log(sum);
  }
}

}  // namespace

void nearest_costs(const CostMatrices& costs, const float* v, int count, float* row_values, int32_t* row_columns,
                   float* column_values, int num_threads) {
  ThreadPool::instance().parallel_for(costs.batch, 1, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t which = begin; which < end; ++which)
      nearest_of_one(costs, which, v, count, row_values, row_columns, column_values);
  });
}

void soften_costs(const CostMatrices& costs, const float* v, const float* epsilon, float* u, float* column_sums,
                  int num_threads) {
  ThreadPool::instance().parallel_for(costs.batch, 1, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t which = begin; which < end; ++which) soften_one(costs, which, v, epsilon[which], u, column_sums);
  });
}

void row_minima(const CostMatrices& costs, double* minima, int num_threads) {
  const int64_t n = costs.columns;
  ThreadPool::instance().parallel_for(costs.batch * costs.rows, 64, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      minima[row] = costs.is_double ? row_kernels().minimum(static_cast<const double*>(costs.data) + row * n, n)
                                    : row_kernels().minimum_float(static_cast<const float*>(costs.data) + row * n, n);
  });
}

void reduce_costs(const CostMatrices& costs, float* out, int num_threads) {
  const int64_t n = costs.columns;
  ThreadPool::instance().parallel_for(costs.batch * costs.rows, 64, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      if (costs.is_double)
        row_kernels().reduce(out + row * n, static_cast<const double*>(costs.data) + row * n, offset_of(costs, row), n);
      else
        row_kernels().reduce_float(out + row * n, static_cast<const float*>(costs.data) + row * n,
                                   static_cast<float>(offset_of(costs, row)), n);
    }
  });
}

}  // namespace graphmill
