// Vectors of floats as wide as a register of the instruction set, and the tile of results that its registers hold.
// Written with the compiler's vector types, so one source serves every instruction set.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace graphmill {
namespace {

#if defined(__AVX512F__)
constexpr int kBytes = 64, kTileRows = 14, kTileVectors = 2;
#elif defined(__AVX2__)
constexpr int kBytes = 32, kTileRows = 6, kTileVectors = 2;
#else
constexpr int kBytes = 16, kTileRows = 6, kTileVectors = 2;
#endif
constexpr int kLanes = kBytes / 4;
constexpr int kTileColumns = kLanes * kTileVectors;

typedef float V __attribute__((vector_size(kBytes)));
typedef float VU __attribute__((vector_size(kBytes), aligned(4), may_alias));
typedef uint32_t VI __attribute__((vector_size(kBytes)));

inline V load(const float* p) { return *reinterpret_cast<const VU*>(p); }
inline void store(float* p, V v) { *reinterpret_cast<VU*>(p) = v; }
inline V splat(float x) { return x - V{}; }  // not x + 0, which would make 0 of -0 and so is an addition

inline V load_some(const float* p, int64_t width) {
  if (width >= kLanes) return load(p);
  V out{};
  memcpy(&out, p, width * 4);
  return out;
}

inline void store_some(float* p, V v, int64_t width) {
  if (width >= kLanes) store(p, v);
  else memcpy(p, &v, width * 4);
}

// sum[f] += row[f] * factor.
inline void add_scaled(float* sum, const float* row, float factor, int64_t n) {
  int64_t f = 0;
  for (; f + kLanes <= n; f += kLanes) store(sum + f, load(sum + f) + load(row + f) * factor);
  for (; f < n; ++f) sum[f] += row[f] * factor;
}

}  // namespace
}  // namespace graphmill
