// Floats out of their shorter forms. `static`: units that include this are compiled for different instruction sets.
#pragma once
#include <cstdint>
#include <cstring>

#include "host_device.h"

namespace graphmill {

GRAPHMILL_HD static inline uint32_t bits_of(float x) {
  uint32_t b;
  memcpy(&b, &x, 4);
  return b;
}

GRAPHMILL_HD static inline float float_of(uint32_t b) {
  float x;
  memcpy(&x, &b, 4);
  return x;
}

GRAPHMILL_HD static inline float from_bfloat16(uint16_t h) { return float_of(static_cast<uint32_t>(h) << 16); }

GRAPHMILL_HD static inline float from_float16_bits(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, rest = static_cast<uint32_t>(h & 0x7fff) << 13;
  if ((h & 0x7c00) == 0x7c00) return float_of(sign | rest | 0x7f800000);
  return float_of(sign | bits_of(float_of(rest) * 0x1p112f));  // the factor moves the exponent, subnormals too
}

}  // namespace graphmill
