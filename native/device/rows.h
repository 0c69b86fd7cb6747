// Rows of features, gathered in float32 out of two tables.
#pragma once
#include <cstdint>

#include "batch.h"
#include "shared/numbers.h"

namespace graphmill {

template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Several {
  T values[kWidth];
};

__device__ inline float to_float(float x) { return x; }

struct Bfloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};
__device__ inline float to_float(Bfloat16 x) { return from_bfloat16(x.bits); }
__device__ inline float to_float(Float16 x) { return from_float16_bits(x.bits); }

// Two tables behind one numbering: rows from num_near on lie in `far`, page-locked memory of the host, say.
struct Tables {
  const void* near;
  const void* far;
  int64_t num_near;
  int64_t num_columns;
};

// Lanes [1 << lanes_log2] go along a row together, so that neighbouring threads read neighbouring bytes.
template <class T, int kWidth>
__device__ inline void gather(const Tables& tables, const int64_t* rows, const int64_t* span, int64_t room,
                              int64_t lanes_log2, float* out) {
  using Read = Several<T, kWidth>;
  using Write = Several<float, kWidth>;
  const int64_t i = this_thread() >> lanes_log2, width = tables.num_columns / kWidth;
  if (i >= room) return;
  const int64_t row = i < span[1] - span[0] ? rows[i] : -1;
  const bool is_near = row < tables.num_near;
  const auto* table = static_cast<const Read*>(is_near ? tables.near : tables.far);
  const int64_t from = (is_near ? row : row - tables.num_near) * width;
  auto* to = reinterpret_cast<Write*>(out) + i * width;
  for (int64_t k = this_thread() & ((1 << lanes_log2) - 1); k < width; k += int64_t{1} << lanes_log2) {
    Write written{};
    if (row >= 0) {
      const Read read = table[from + k];
      for (int j = 0; j < kWidth; ++j) written.values[j] = to_float(read.values[j]);
    }
    to[k] = written;
  }
}

}  // namespace graphmill
