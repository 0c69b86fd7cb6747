// Products with sparse matrices, and with gradients that a rectifier has made sparse.
#include "sparse.h"

#include <cstdint>
#include <cstring>

#include "vectors.h"

namespace graphmill {
namespace {

constexpr int kStripVectors = 8;  // of a strip of sums that stays in registers: as many as multiply-adds are under way

template <int Vectors>
inline void combine_strip(const SparseRows& matrix, StridedRows out, ConstStridedRows in, ConstStridedRows start) {
  for (int64_t row = 0; row < matrix.num_rows; ++row) {
    V sum[Vectors] = {};  // separately first: a sum over many calls then loses less precision
    for (int64_t e = matrix.indptr[row]; e < matrix.indptr[row + 1]; ++e) {
      const float* from = in.data + matrix.indices[e] * in.stride;
      const V factor = splat(matrix.values[e]);
#pragma GCC unroll 16
      for (int v = 0; v < Vectors; ++v) sum[v] += factor * load(from + v * kLanes);
    }
    if (start.data)
      for (int v = 0; v < Vectors; ++v) sum[v] += load(start.data + row * start.stride + v * kLanes);
    for (int v = 0; v < Vectors; ++v) store(out.data + row * out.stride + v * kLanes, sum[v]);
  }
}

inline void combine_column(const SparseRows& matrix, StridedRows out, ConstStridedRows in, ConstStridedRows start) {
  for (int64_t row = 0; row < matrix.num_rows; ++row) {
    float sum = 0.0f;
    for (int64_t e = matrix.indptr[row]; e < matrix.indptr[row + 1]; ++e)
      sum += matrix.values[e] * in.data[matrix.indices[e] * in.stride];
    out.data[row * out.stride] = (start.data ? start.data[row * start.stride] : 0.0f) + sum;
  }
}

void combine_rows(const SparseRows& matrix, StridedRows out, ConstStridedRows in, ConstStridedRows start, int64_t n) {
  const auto advance = [&](int64_t columns) {
    out.data += columns;
    in.data += columns;
    if (start.data) start.data += columns;
    n -= columns;
  };
  for (; n >= kStripVectors * kLanes; advance(kStripVectors * kLanes))
    combine_strip<kStripVectors>(matrix, out, in, start);
  for (; n >= 4 * kLanes; advance(4 * kLanes)) combine_strip<4>(matrix, out, in, start);
  for (; n >= kLanes; advance(kLanes)) combine_strip<1>(matrix, out, in, start);
  for (; n > 0; advance(1)) combine_column(matrix, out, in, start);
}

// Bit i: whether p[i] is positive or NaN, for one vector.
inline uint64_t kept_bits(const float* p) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask(_mm512_loadu_ps(p), _mm512_setzero_ps(), _CMP_NLE_UQ);
#elif defined(__AVX2__)
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(p), _mm256_setzero_ps(), _CMP_NLE_UQ)));
#else
  uint64_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= static_cast<uint64_t>(!(p[i] <= 0)) << i;
  return bits;
#endif
}

void collect_kept(int64_t* starts, int32_t* rows, float* values, const float* g, const float* out, float scale,
                  int64_t num_rows, int64_t n, float* sums) {
  int32_t* counts = rows;  // until they are summed up
  memset(counts, 0, n * 4);
  for (int64_t row = 0; row < num_rows; ++row)
    for (int64_t c = 0; c < n; ++c) counts[c] += !(out[row * n + c] <= 0);
  int64_t total = 0;
  for (int64_t c = 0; c < n; ++c) {
    starts[c] = total;
    total += counts[c];
  }
  constexpr int64_t kColumns = 64;  // at a time: one mispredicted branch where their bits end
  for (int64_t row = 0; row < num_rows; ++row, g += n, out += n) {
    for (int64_t first = 0; first < n; first += kColumns) {
      const int64_t width = n - first < kColumns ? n - first : kColumns;
      uint64_t bits = 0;
      int64_t i = 0;
      for (; i + kLanes <= width; i += kLanes) bits |= kept_bits(out + first + i) << i;
      for (; i < width; ++i) bits |= static_cast<uint64_t>(!(out[first + i] <= 0)) << i;
      for (; bits; bits &= bits - 1) {
        const int64_t c = first + __builtin_ctzll(bits), at = starts[c]++;
        const float value = g[c] * scale;
        rows[at] = static_cast<int32_t>(row);
        values[at] = value;
        sums[c] += value;
      }
    }
  }
  memmove(starts + 1, starts, n * 8);  // each had moved to the start of the next
  starts[0] = 0;
}

}  // namespace

namespace GRAPHMILL_ISA {

extern const SparseKernels sparse;
const SparseKernels sparse = {kStripVectors * kLanes, combine_rows, collect_kept};

}  // namespace GRAPHMILL_ISA
}  // namespace graphmill
