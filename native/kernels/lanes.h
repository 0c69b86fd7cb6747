// Vectors of any type and number of lanes.
#pragma once
#include <cstdint>
#include <cstring>

#include "vectors.h"

namespace graphmill {
namespace {

template <class T, int L>
struct Pack {
  typedef T Lanes __attribute__((vector_size(L * sizeof(T))));
};
template <class T, int L>
using Lanes = Pack<T, L>::Lanes;

template <int L, class T>
inline Lanes<T, L> lanes(const T* p) {
  Lanes<T, L> v;
  memcpy(&v, p, sizeof(v));
  return v;
}
template <class T, class W>
inline void put(T* p, W v) {
  memcpy(p, &v, sizeof(v));
}

template <class T, int L>
inline T sum_of(Lanes<T, L> v) {
#if __has_builtin(__builtin_shufflevector)  // GCC 12, clang: without a detour through memory
  if constexpr (L == 16) {
    return sum_of<T, 8>(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                        __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15));
  } else if constexpr (L == 8) {
    return sum_of<T, 4>(__builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7));
  } else if constexpr (L == 4) {
    return sum_of<T, 2>(__builtin_shufflevector(v, v, 0, 1) + __builtin_shufflevector(v, v, 2, 3));
  } else if constexpr (L == 2) {
    return v[0] + v[1];
  } else {
    return v[0];
  }
#else
  if constexpr (L == 1) {
    return v[0];
  } else {
    Lanes<T, L / 2> halves[2];
    memcpy(&halves, &v, sizeof(v));
    return sum_of<T, L / 2>(halves[0] + halves[1]);
  }
#endif
}

template <class W>
constexpr int kWide = kBytes / static_cast<int>(sizeof(W));  // lanes of a vector of W

template <class W>
using Wide = Lanes<W, kWide<W>>;

// Bit i: whether lane i is positive.
template <class T, int L>
inline uint32_t positive_bits(Lanes<T, L> v) {
#if defined(__AVX512F__)
  if constexpr (sizeof(v) == 64 && sizeof(T) == 4) return _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_GT_OQ);
  if constexpr (sizeof(v) == 64 && sizeof(T) == 8) return _mm512_cmp_pd_mask(v, _mm512_setzero_pd(), _CMP_GT_OQ);
#endif
#if defined(__AVX__)
  if constexpr (sizeof(v) == 32 && sizeof(T) == 4)
    return _mm256_movemask_ps(_mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_GT_OQ));
  if constexpr (sizeof(v) == 32 && sizeof(T) == 8)
    return _mm256_movemask_pd(_mm256_cmp_pd(v, _mm256_setzero_pd(), _CMP_GT_OQ));
#endif
  uint32_t bits = 0;
  for (int i = 0; i < L; ++i) bits |= static_cast<uint32_t>(v[i] > 0) << i;
  return bits;
}

}  // namespace
}  // namespace graphmill
