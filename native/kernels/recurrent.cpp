// The row-wise work of a diffusion convolutional gated recurrent unit.
#include "recurrent.h"

#include <cstdint>

#include "exponential.h"
#include "vectors.h"

namespace graphmill {
namespace {

inline V sigmoid(V x) { return 1.0f / (1.0f + exponential(-x)); }
inline V hyperbolic_tangent(V x) { return 1.0f - 2.0f / (1.0f + exponential(x + x)); }

void gru_reset(float* gates, const float* h, StridedRows reset_h, int64_t m, int64_t units, bool activate) {
  for (int64_t row = 0; row < m; ++row, gates += 2 * units, h += units) {
    float* out = reset_h.data + row * reset_h.stride;
    for (int64_t f = 0; f < units; f += kLanes) {
      const int64_t width = units - f;
      V reset = load_some(gates + f, width);
      if (activate) {
        reset = sigmoid(reset);
        store_some(gates + f, reset, width);
        store_some(gates + units + f, sigmoid(load_some(gates + units + f, width)), width);
      }
      store_some(out + f, reset * load_some(h + f, width), width);
    }
  }
}

void gru_update(float* candidate, const float* gates, const float* h, float* new_h, int64_t m, int64_t units) {
  for (int64_t row = 0; row < m; ++row, gates += 2 * units, h += units, candidate += units, new_h += units) {
    for (int64_t f = 0; f < units; f += kLanes) {
      const int64_t width = units - f;
      const V c = hyperbolic_tangent(load_some(candidate + f, width));
      store_some(candidate + f, c, width);
      const V update = load_some(gates + units + f, width);
      store_some(new_h + f, c + update * (load_some(h + f, width) - c), width);
    }
  }
}

void gru_update_backward(const float* grad_new, const float* gates, const float* candidate, const float* h,
                         float* grad_before, float* grad_h, int64_t m, int64_t units) {
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t f = 0; f < units; f += kLanes) {
      const int64_t width = units - f;
      const V grad = load_some(grad_new + f, width), c = load_some(candidate + f, width);
      const V update = load_some(gates + units + f, width);
      store_some(grad_before + units + f, grad * (load_some(h + f, width) - c) * update * (1.0f - update), width);
      store_some(grad_before + 2 * units + f, grad * (1.0f - update) * (1.0f - c * c), width);
      store_some(grad_h + f, grad * update, width);
    }
    grad_new += units, gates += 2 * units, candidate += units, h += units, grad_before += 3 * units, grad_h += units;
  }
}

void gru_reset_backward(const float* grad_reset_h, const float* gates, const float* h, float* grad_before,
                        float* grad_h, int64_t m, int64_t units) {
  for (int64_t row = 0; row < m;
       ++row, grad_reset_h += units, gates += 2 * units, h += units, grad_before += 3 * units, grad_h += units) {
    for (int64_t f = 0; f < units; f += kLanes) {
      const int64_t width = units - f;
      const V grad = load_some(grad_reset_h + f, width), reset = load_some(gates + f, width);
      store_some(grad_before + f, grad * load_some(h + f, width) * reset * (1.0f - reset), width);
      store_some(grad_h + f, load_some(grad_h + f, width) + grad * reset, width);
    }
  }
}

}  // namespace

namespace GRAPHMILL_ISA {

extern const RecurrentKernels recurrent;
const RecurrentKernels recurrent = {
    gru_reset,
    gru_update,
    gru_update_backward,
    gru_reset_backward,
};

}  // namespace GRAPHMILL_ISA
}  // namespace graphmill
