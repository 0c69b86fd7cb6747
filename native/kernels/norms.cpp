// Batch norm's work over the rows of one thread's share, by strips of columns that registers hold.
#include "norms.h"

#include <cstdint>

#include "dropout.h"
#include "vectors.h"

namespace graphmill {
namespace {

constexpr int kWide = 4;  // vectors of a strip: as many sums under way hide the latency of an addition

template <int kVectors>
struct Strip {  // columns first … first + width, or as many whole vectors
  int64_t first, width;

  V load_from(const float* row, int vector) const { return load_some(row + first + vector * kLanes, width); }
  void store_to(float* row, int vector, V value) const { store_some(row + first + vector * kLanes, value, width); }
};

// body(strip) for all columns: wide strips, then single vectors, the last of which may be cut short.
template <class Body>
void for_strips(int64_t n, Body body) {
  int64_t first = 0;
  for (; first + kWide * kLanes <= n; first += kWide * kLanes) body(Strip<kWide>{first, kLanes});
  for (; first < n; first += kLanes) body(Strip<1>{first, n - first});
}

// g of the sums above: what the rectifier let through. NaN passes.
inline V through(V grad, V out) {
  const V zero{};
  return out <= zero ? zero : grad;
}

template <int kVectors>
void strip_moments(Strip<kVectors> strip, float* mean, float* squares, const float* x, int64_t num_rows, int64_t n) {
  V sums[kVectors] = {}, means[kVectors];
  for (int64_t row = 0; row < num_rows; ++row)
    for (int v = 0; v < kVectors; ++v) sums[v] += strip.load_from(x + row * n, v);
  for (int v = 0; v < kVectors; ++v) {
    means[v] = sums[v] / static_cast<float>(num_rows);
    strip.store_to(mean, v, means[v]);
    sums[v] = V{};
  }
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int v = 0; v < kVectors; ++v) {
      const V distance = strip.load_from(x + row * n, v) - means[v];
      sums[v] += distance * distance;
    }
  }
  for (int v = 0; v < kVectors; ++v) strip.store_to(squares, v, sums[v]);
}

template <int kVectors>
void strip_scale_relu(Strip<kVectors> strip, float* out, const float* x, const float* scale, const float* shift,
                      int64_t num_rows, int64_t n) {
  V scales[kVectors], shifts[kVectors];
  for (int v = 0; v < kVectors; ++v) scales[v] = strip.load_from(scale, v), shifts[v] = strip.load_from(shift, v);
  for (int64_t row = 0; row < num_rows; ++row)
    for (int v = 0; v < kVectors; ++v)
      strip.store_to(out + row * n, v, positive(strip.load_from(x + row * n, v) * scales[v] + shifts[v]));
}

template <int kVectors>
void strip_gradient_sums(Strip<kVectors> strip, float* sums, float* products, const float* grad, const float* out,
                         const float* x, const float* mean, int64_t num_rows, int64_t n) {
  V means[kVectors], of_g[kVectors] = {}, of_products[kVectors] = {};
  for (int v = 0; v < kVectors; ++v) means[v] = strip.load_from(mean, v);
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int v = 0; v < kVectors; ++v) {
      const V g = through(strip.load_from(grad + row * n, v), strip.load_from(out + row * n, v));
      of_g[v] += g;
      of_products[v] += g * (strip.load_from(x + row * n, v) - means[v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) strip.store_to(sums, v, of_g[v]), strip.store_to(products, v, of_products[v]);
}

template <int kVectors>
void strip_gradient(Strip<kVectors> strip, float* grad_x, const float* grad, const float* out, const float* x,
                    const float* mean, const float* scale, const float* slope, const float* shift, int64_t num_rows,
                    int64_t n) {
  V means[kVectors], scales[kVectors], slopes[kVectors], shifts[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    means[v] = strip.load_from(mean, v), scales[v] = strip.load_from(scale, v);
    slopes[v] = strip.load_from(slope, v), shifts[v] = strip.load_from(shift, v);
  }
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int v = 0; v < kVectors; ++v) {
      const V g = through(strip.load_from(grad + row * n, v), strip.load_from(out + row * n, v));
      const V distance = strip.load_from(x + row * n, v) - means[v];
      strip.store_to(grad_x + row * n, v, g * scales[v] + distance * slopes[v] + shifts[v]);
    }
  }
}

void moments(float* mean, float* squares, const float* x, int64_t num_rows, int64_t n) {
  for_strips(n, [&](auto strip) { strip_moments(strip, mean, squares, x, num_rows, n); });
}

void scale_relu(float* out, const float* x, const float* scale, const float* shift, int64_t num_rows, int64_t n) {
  for_strips(n, [&](auto strip) { strip_scale_relu(strip, out, x, scale, shift, num_rows, n); });
}

void gradient_sums(float* sums, float* products, const float* grad, const float* out, const float* x, const float* mean,
                   int64_t num_rows, int64_t n) {
  for_strips(n, [&](auto strip) { strip_gradient_sums(strip, sums, products, grad, out, x, mean, num_rows, n); });
}

void gradient(float* grad_x, const float* grad, const float* out, const float* x, const float* mean, const float* scale,
              const float* slope, const float* shift, int64_t num_rows, int64_t n) {
  for_strips(n,
             [&](auto strip) { strip_gradient(strip, grad_x, grad, out, x, mean, scale, slope, shift, num_rows, n); });
}

}  // namespace

namespace GRAPHMILL_ISA {

extern const NormKernels norms;
const NormKernels norms = {moments, scale_relu, gradient_sums, gradient};

}  // namespace GRAPHMILL_ISA
}  // namespace graphmill
