// Scores of queries and rows of a table in register tiles, as in products.cpp.
#include "ranking.h"

#include <cstdint>
#include <cstring>

#include "vectors.h"

namespace graphmill {
namespace {

// Said outright: where `a * b + c` is left to the compiler it may contract one kernel's sums and not another's.
inline V multiply_add(V a, V b, V c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__ARM_FEATURE_FMA) && defined(__aarch64__)
  return vfmaq_f32(c, a, b);
#else
  return a * b + c;
#endif
}

// Bit i: whether lane i of x is above y, equal to it, at or below it, or (with itself) no number.
#if defined(__AVX512F__)
inline uint32_t bits_above(V x, V y) { return _mm512_cmp_ps_mask(x, y, _CMP_GT_OQ); }
inline uint32_t bits_equal(V x, V y) { return _mm512_cmp_ps_mask(x, y, _CMP_EQ_OQ); }
inline uint32_t bits_not_at_most(V x, V y) { return _mm512_cmp_ps_mask(x, y, _CMP_NLE_UQ); }
inline uint32_t bits_nan(V x) { return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q); }
#elif defined(__AVX2__)
inline uint32_t movemask(V x) { return static_cast<uint32_t>(_mm256_movemask_ps(x)); }
inline uint32_t bits_above(V x, V y) { return movemask(_mm256_cmp_ps(x, y, _CMP_GT_OQ)); }
inline uint32_t bits_equal(V x, V y) { return movemask(_mm256_cmp_ps(x, y, _CMP_EQ_OQ)); }
inline uint32_t bits_not_at_most(V x, V y) { return movemask(_mm256_cmp_ps(x, y, _CMP_NLE_UQ)); }
inline uint32_t bits_nan(V x) { return movemask(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)); }
#else
template <class Mask>
inline uint32_t lane_bits(Mask mask) {  // each lane all ones or zero
#if defined(__SSE2__)
  return static_cast<uint32_t>(__builtin_ia32_movmskps(reinterpret_cast<V>(mask)));
#else
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= static_cast<uint32_t>(mask[i] & 1) << i;
  return bits;
#endif
}
inline uint32_t bits_above(V x, V y) { return lane_bits(x > y); }
inline uint32_t bits_equal(V x, V y) { return lane_bits(x == y); }
inline uint32_t bits_not_at_most(V x, V y) { return lane_bits(~(x <= y)); }
inline uint32_t bits_nan(V x) { return lane_bits(x != x); }
#endif

void pack_side_by_side(float* packed, int64_t lanes, const float* rows, const int64_t* ids, int64_t count,
                       int64_t width) {
  if (count < lanes) memset(packed, 0, lanes * width * 4);
  for (int64_t j = 0; j < count; ++j) {
    const float* row = rows + (ids ? ids[j] : j) * width;
    for (int64_t i = 0; i < width; ++i) packed[i * lanes + j] = row[i];
  }
}

template <int Queries>
inline void score(V (&sums)[Queries][kTileVectors], const float* queries, const float* rows, int64_t width) {
  for (int64_t i = 0; i < width; ++i, queries += Queries, rows += kTileColumns) {
    V right[kTileVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) right[v] = load(rows + v * kLanes);
#pragma GCC unroll 16
    for (int q = 0; q < Queries; ++q) {
      const V left = splat(queries[q]);
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) sums[q][v] = multiply_add(left, right[v], sums[q][v]);
    }
  }
}

uint32_t count_tile(const float* queries, const float* rows, int64_t width, const float* own, const uint32_t* live,
                    int64_t num_queries, int64_t* above, int64_t* tied) {
  V sums[kTileRows][kTileVectors] = {};
  score<kTileRows>(sums, queries, rows, width);
  uint32_t with_nan = 0;
#pragma GCC unroll 16
  for (int q = 0; q < kTileRows; ++q) {
    if (q >= num_queries) break;
    const V mine = splat(own[q]);
    uint32_t over = 0, equal = 0, nan = 0;
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      over |= bits_above(sums[q][v], mine) << v * kLanes;
      equal |= bits_equal(sums[q][v], mine) << v * kLanes;
      nan |= bits_nan(sums[q][v]) << v * kLanes;
    }
    const uint32_t its = live[q];
    if (nan & its) with_nan |= 1u << q;
    above[q] += __builtin_popcount(over & its);
    tied[q] += __builtin_popcount(equal & its);
  }
  return with_nan;
}

void score_tile(const float* queries, const float* rows, int64_t width, const float* bounds, float* scores,
                uint32_t* chosen) {
  V sums[kTileRows][kTileVectors] = {};
  score<kTileRows>(sums, queries, rows, width);
#pragma GCC unroll 16
  for (int q = 0; q < kTileRows; ++q) {
    const V bound = splat(bounds[q]);
    uint32_t bits = 0;
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      bits |= bits_not_at_most(sums[q][v], bound) << v * kLanes;
      store(scores + q * kTileColumns + v * kLanes, sums[q][v]);
    }
    chosen[q] = bits;
  }
}

void score_rows(const float* query, const float* rows, int64_t width, float* scores) {
  V sums[1][kTileVectors] = {};
  score<1>(sums, query, rows, width);
  for (int v = 0; v < kTileVectors; ++v) store(scores + v * kLanes, sums[0][v]);
}

}  // namespace

namespace GRAPHMILL_ISA {

extern const RankingKernels ranking;
const RankingKernels ranking = {
    kTileRows, kTileColumns, pack_side_by_side, count_tile, score_tile, score_rows,
};

}  // namespace GRAPHMILL_ISA
}  // namespace graphmill
