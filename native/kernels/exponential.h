// The exponential of a vector.
#pragma once
#include "vectors.h"

namespace graphmill {
namespace {

// e^x to about 2 units in the last place: Cephes' expf (Moshier 1992), with the power of two put into the exponent's
// bits.
inline V exponential(V x) {
  const V low = splat(-87.0f), high = splat(88.0f);
  x = x < low ? low : x;
  x = x > high ? high : x;
  const V shift = splat(12582912.0f);  // 1.5 * 2^23: adding it leaves the nearest integer in the lowest bits
  const V shifted = x * 1.44269504088896341f + shift;
  const V whole = shifted - shift;
  const V rest = (x - whole * 0.693359375f) - whole * -2.12194440e-4f;
  V sum = splat(1.9875691500e-4f);
  sum = sum * rest + 1.3981999507e-3f;
  sum = sum * rest + 8.3334519073e-3f;
  sum = sum * rest + 4.1665795894e-2f;
  sum = sum * rest + 1.6666665459e-1f;
  sum = sum * rest + 5.0000001201e-1f;
  sum = sum * (rest * rest) + rest + 1.0f;
  const VI bits = reinterpret_cast<VI>(sum) + (reinterpret_cast<VI>(shifted) << 23);
  return reinterpret_cast<V>(bits);
}

}  // namespace
}  // namespace graphmill
