// Counter-based random numbers: a draw is a function of its coordinates, never of what was drawn before.
// SplitMix64's finaliser (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators").
#pragma once
#include <cstdint>

#include "host_device.h"

namespace graphmill {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;

GRAPHMILL_HD static inline uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// A key for one more coordinate below `key`.
GRAPHMILL_HD static inline uint64_t subkey(uint64_t key, uint64_t coordinate) {
  return mix64(key + (coordinate + 1) * kGolden);
}

// The index-th draw under `key`, uniform on [0, bound): the upper half of 64 random bits, scaled (Lemire 2019, without
// the rejection: the bias is below bound / 2^32). Bounds of 2^32 and more are drawn from all 64 bits.
GRAPHMILL_HD static inline uint64_t draw_below(uint64_t key, uint64_t index, uint64_t bound) {
  const uint64_t bits = subkey(key, index);
  if (bound >> 32) return static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * bound) >> 64);
  return (bits >> 32) * bound >> 32;
}

}  // namespace graphmill
