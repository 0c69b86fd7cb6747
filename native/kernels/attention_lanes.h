// What attention does to lanes, a bit a lane, and edges in groups of a known number.
#pragma once
#include <cstdint>
#include <cstring>

#include "attention.h"
#include "lanes.h"

namespace graphmill {
namespace {

template <class T, int L>
inline Lanes<T, L> leaky(Lanes<T, L> z, T slope) {
  const Lanes<T, L> zero{};
  return z > zero ? z : z * slope;
}

// ---- a bit a lane --------------------------------------------------------------------------------------------------

// `ones` in the lanes whose bit is set, `others` elsewhere.
template <class T, int L>
inline Lanes<T, L> chosen(uint32_t bits, Lanes<T, L> ones, Lanes<T, L> others) {
#if defined(__AVX512F__)
  if constexpr (sizeof(ones) == 64 && sizeof(T) == 4)
    return _mm512_mask_blend_ps(static_cast<__mmask16>(bits), others, ones);
  if constexpr (sizeof(ones) == 64 && sizeof(T) == 8)
    return _mm512_mask_blend_pd(static_cast<__mmask8>(bits), others, ones);
#endif
  using Whole = decltype(ones > others);  // of as many bits
  Whole own{};
  for (int i = 0; i < L; ++i) own[i] = bits >> i & 1;
  return own != Whole{} ? ones : others;
}

// L bits of a row of bits, from bit `at`, a multiple of L: stored in ascending order, so that a byte begins with its
// first.
template <int L>
inline void put_bits(uint8_t* row, int64_t at, uint32_t bits) {
  if constexpr (L >= 8) {
    memcpy(row + at / 8, &bits, L / 8);
  } else {
    uint8_t& byte = row[at / 8];
    byte = static_cast<uint8_t>(at % 8 ? byte | bits << at % 8 : bits);
  }
}
template <int L>
inline uint32_t bits_of(const uint8_t* row, int64_t at) {
  uint32_t bits = 0;
  if constexpr (L >= 8) memcpy(&bits, row + at / 8, L / 8);
  else bits = row[at / 8] >> at % 8 & ((1u << L) - 1);
  return bits;
}

// ---- groups of edges -----------------------------------------------------------------------------------------------

template <int N>
struct Number {
  static constexpr int value = N;
};

// body(number, first) for edges 0 … count - 1 in as few groups as have a number that the compiler knows: what is read
// once for all edges of a group stays in a register.
template <class Body>
inline void in_groups(int64_t count, const Body& body) {
  if (count == kTileEdges) return body(Number<kTileEdges>{}, 0);
  const int64_t first = count < 4 ? 0 : 4;
  if (first) body(Number<4>{}, 0);
  switch (count - first) {
    case 3: return body(Number<3>{}, first);
    case 2: return body(Number<2>{}, first);
    case 1: return body(Number<1>{}, first);
    default: return;
  }
}

}  // namespace
}  // namespace graphmill
