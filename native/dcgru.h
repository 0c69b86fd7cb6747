// The diffusion convolutional gated recurrent unit (Li et al. 2018, arXiv 1707.01926), one step, forward and backward.
//
//   gates = [r | u] = σ(Σ_s S_s [h | x] W_s + b)      candidate = tanh(Σ_s S_s [x | r ∘ h] V_s + d)
//   new_h = u ∘ h + (1 − u) ∘ candidate
//
// The slots S_s are I, P_1, P_1², …, P_2, P_2², …: powers of the random walks in both directions. A sample's rows of
// all slots are stored side by side, [S_0 h, S_1 h, … | S_0 x, … | S_0 (r ∘ h), …], so each of the two is one product,
// and a sample's share of the work stays in the core's cache from the diffusion to the new state. Backward diffuses
// again rather than store the slots. Samples are cut into blocks that do not depend on the number of threads, so
// neither does any bit of the result.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels.h"

namespace graphmill {

// The random walks of a graph: `num_walks` square sparse matrices, stacked, and their transposes.
struct Walks {
  struct Matrix {
    std::vector<int64_t> indptr;
    std::vector<int32_t> indices;
    std::vector<float> values;
    SparseRows rows() const {
      return {indptr.data(), indices.data(), values.data(), static_cast<int64_t>(indptr.size()) - 1};
    }
  };

  Walks(const SparseRows& stacked, int64_t num_nodes, int64_t num_steps);
  int64_t num_slots() const { return 1 + static_cast<int64_t>(forward.size()) * num_steps; }

  int64_t num_nodes, num_steps;
  std::vector<Matrix> forward, transposed;
};

struct AlignedArray {  // aligned, uninitialised
  explicit AlignedArray(int64_t count)
      : data(static_cast<float*>(std::aligned_alloc(64, (count * 4 + 64) / 64 * 64)), &std::free) {}
  float* get() const { return data.get(); }
  std::unique_ptr<float, decltype(&std::free)> data;
};

// Weights packed for the products of both directions; valid for all steps of a sequence.
struct DcgruWeights {
  // gate_weight [2 units, slots (units + channels)], candidate_weight [units, slots (channels + units)].
  DcgruWeights(const float* gate_weight, const float* gate_bias, const float* candidate_weight,
               const float* candidate_bias, int64_t num_slots, int64_t channels, int64_t units);

  int64_t num_slots, channels, units;
  AlignedArray gates, candidate;        // forward
  AlignedArray of_h, of_x, of_reset_h;  // backward
  std::vector<float> gate_bias, candidate_bias;
};

struct DcgruState {  // of one step; rows are [sample, node]
  int64_t num_samples;
  const float* x;    // [rows, channels]
  const float* h;    // [rows, units]
  float* gates;      // [rows, 2 units]: forward writes, backward reads
  float* candidate;  // [rows, units]: the same
};

struct DcgruGrads {
  const float* new_h;  // [rows, units]
  float* h;            // [rows, units]
  float* x;            // [rows, channels], or null if this gradient is not wanted
  float *gate_weight, *gate_bias, *candidate_weight, *candidate_bias;  // added to
};

void dcgru_forward(const Walks& walks, const DcgruWeights& weights, const DcgruState& state, float* new_h,
                   int num_threads);
void dcgru_backward(const Walks& walks, const DcgruWeights& weights, const DcgruState& state, const DcgruGrads& grads,
                    int num_threads);

}  // namespace graphmill
