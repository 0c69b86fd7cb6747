// Dropout keyed by row and column, and the rectifier before it.
#pragma once
#include <cstdint>

#include "vectors.h"

namespace graphmill {
namespace {

// 32 random bits of one (row key, column): murmur3's finaliser over a Weyl sequence; enough for a keep-or-drop choice.
template <class I>
inline I draw_bits(I column, uint32_t low, uint32_t high) {
  I x = column * 0x9E3779B9u + low;
  x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
  x = (x ^ (x >> 13) ^ high) * 0xC2B2AE35u;
  return x ^ (x >> 16);
}

inline VI column_numbers(int64_t first) {
  VI columns;
  for (int i = 0; i < kLanes; ++i) columns[i] = static_cast<uint32_t>(first) + i;
  return columns;
}

inline V keep(V x, VI columns, uint64_t key, uint32_t threshold, float scale) {
  const VI drawn = draw_bits(columns, static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
  const V zero{};
  return drawn >= threshold ? x * scale : zero;
}

inline V positive(V x) {  // NaN stays NaN, as in torch: a model that has diverged must not look like one of zeros
  const V zero{};
  return x <= zero ? zero : x;
}

}  // namespace
}  // namespace graphmill
