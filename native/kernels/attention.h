// Attention over one thread's share of the targets, or the sources.
#pragma once
#include <cstdint>

#include "../attention.h"

namespace graphmill {

constexpr int64_t kTileEdges = 8;  // that are scored at a time

// The work of one share of the rows; `scratch` holds kTileEdges * heads * (scores + 3) + 3 * heads values.
template <class T>
struct AttentionKernels {
  void (*forward)(const Attention<T>& in, int64_t begin, int64_t end, T* out, T* lse, T* scratch);
  // alpha[id, h] of the edges to the targets [begin, end).
  void (*weights)(const Attention<T>& in, int64_t begin, int64_t end, const T* lse, T* alpha, T* scratch);
  // The targets' half: all but the gradients of sources. The share's sums for weight and att are added to `partial`.
  void (*backward_targets)(const Attention<T>& in, int64_t begin, int64_t end, const AttentionGrads<T>& grads,
                           T* partial, T* scratch);
  void (*backward_sources)(const Attention<T>& in, int64_t begin, int64_t end, const AttentionGrads<T>& grads,
                           T* scratch);
};

}  // namespace graphmill
