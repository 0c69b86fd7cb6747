// Passes over one row of a matrix of costs.
#include "assignment_features.h"

#include <cstdint>

#include "exponential.h"
#include "lanes.h"
#include "vectors.h"

namespace graphmill {
namespace {

template <class T>
T minimum_of(const T* row, int64_t n) {
  constexpr int L = kWide<T>;
  T least = static_cast<T>(__builtin_inf());
  int64_t j = 0;
  if (n >= L) {
    Wide<T> low = lanes<L>(row);
    for (j = L; j + L <= n; j += L) {
      const Wide<T> next = lanes<L>(row + j);
      low = next < low ? next : low;
    }
    for (int i = 0; i < L; ++i) least = low[i] < least ? low[i] : least;
  }
  for (; j < n; ++j) least = row[j] < least ? row[j] : least;
  return least;
}

void reduce_row(float* out, const double* row, double offset, int64_t n) {
  for (int64_t j = 0; j < n; ++j) out[j] = static_cast<float>(row[j] - offset);
}

void reduce_row_float(float* out, const float* row, float offset, int64_t n) {
  for (int64_t j = 0; j < n; ++j) out[j] = row[j] - offset;
}

template <int W>
inline void insert(V* best, V next) {
  for (int l = 0; l < W; ++l) {
    const V low = next < best[l] ? next : best[l];
    next = next < best[l] ? best[l] : next;
    best[l] = low;
  }
}

// values [count] ascending, equal ones by place, takes one more in.
inline void insert_place(float* values, int32_t* columns, int count, float value, int32_t column) {
  int l = count - 1;
  if (!(value < values[l])) return;
  for (; l > 0 && value < values[l - 1]; --l) {
    values[l] = values[l - 1];
    columns[l] = columns[l - 1];
  }
  values[l] = value;
  columns[l] = column;
}

// Each lane keeps its W smallest. The count-th smallest of all that are kept bounds the count-th smallest of the row
// from above, closely, and a second pass takes what is not above it.
template <int W>
void nearest_of(const float* x, const float* v, int64_t n, int count, float* y, float* values, int32_t* columns) {
  const V none = splat(__builtin_inff());
  V best[W];
  for (int l = 0; l < W; ++l) best[l] = none;
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    const V next = load(x + j) - load(v + j);
    store(y + j, next);
    insert<W>(best, next);
  }
  if (j < n) {
    V next = none;
    for (int64_t i = j; i < n; ++i) next[i - j] = y[i] = x[i] - v[i];
    insert<W>(best, next);
  }
  for (int l = 0; l < count; ++l) {
    values[l] = __builtin_inff();
    columns[l] = -1;
  }
  for (int l = 0; l < W; ++l)
    for (int i = 0; i < kLanes; ++i) insert_place(values, columns, count, best[l][i], -1);
  const float bound = values[count - 1];
  for (int l = 0; l < count; ++l) values[l] = __builtin_inff();
  const V highest = splat(bound < __builtin_inff() ? bound : __FLT_MAX__), one = splat(1.0f), zero{};
  for (j = 0; j + kLanes <= n; j += kLanes) {
    for (uint32_t bits = positive_bits<float, kLanes>(load(y + j) <= highest ? one : zero); bits; bits &= bits - 1) {
      const int64_t place = j + __builtin_ctz(bits);
      insert_place(values, columns, count, y[place], static_cast<int32_t>(place));
    }
  }
  for (; j < n; ++j) insert_place(values, columns, count, y[j], static_cast<int32_t>(j));
}

void nearest_of_row(const float* x, const float* v, int64_t n, int count, float* y, float* values, int32_t* columns) {
  if (count <= kLanes) nearest_of<1>(x, v, n, count, y, values, columns);
  else nearest_of<2>(x, v, n, count, y, values, columns);
}

template <int W>
void keep_smallest_of(const float* y, float u, int64_t n, float* best) {
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    V next = load(y + j) - u;
    if (!positive_bits<float, kLanes>(load(best + (W - 1) * n + j) - next)) continue;
    for (int l = 0; l < W; ++l) {
      const V kept = load(best + l * n + j);
      store(best + l * n + j, next < kept ? next : kept);
      next = next < kept ? kept : next;
    }
  }
  for (; j < n; ++j) {
    float next = y[j] - u;
    for (int l = 0; l < W; ++l) {
      float& kept = best[l * n + j];
      if (!(next < kept)) continue;
      const float larger = kept;
      kept = next;
      next = larger;
    }
  }
}

void keep_smallest(const float* y, float u, int64_t n, int width, float* best) {
  if (width == 1) keep_smallest_of<1>(y, u, n, best);
  else if (width == 2) keep_smallest_of<2>(y, u, n, best);
  else if (width == 4) keep_smallest_of<4>(y, u, n, best);
  else keep_smallest_of<8>(y, u, n, best);
}

float soften_row(const float* x, const float* v, float u, float inverse_epsilon, int64_t n, float* e) {
  const V least = splat(-87.0f), zero{};
  V sum{};
  for (int64_t j = 0; j < n; j += kLanes) {
    const int64_t width = n - j;
    const V exponent = (u + load_some(v + j, width) - load_some(x + j, width)) * inverse_epsilon;
    V term = exponent > least ? exponential(exponent) : zero;
    if (width < kLanes)
      for (int64_t i = width; i < kLanes; ++i) term[i] = 0;
    store_some(e + j, term, width);
    sum += term;
  }
  return sum_of<float, kLanes>(sum);
}

}  // namespace

namespace GRAPHMILL_ISA {

extern const AssignmentFeatureKernels assignment_features;
const AssignmentFeatureKernels assignment_features = {
    reduce_row, reduce_row_float, minimum_of<double>, minimum_of<float>, nearest_of_row, keep_smallest, soften_row};

}  // namespace GRAPHMILL_ISA
}  // namespace graphmill
