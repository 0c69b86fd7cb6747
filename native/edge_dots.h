// A dot product for each edge and head, of a row of its target and a row of its source, and the gradients:
//
//   out[id, h] = <q[i, h], k[j, h]>      for the edge `id` from j to i
//
// These are the logits of attention by dot products; softmax and sums over them are attention.h's.
#pragma once
#include <cstdint>

#include "attention.h"

namespace graphmill {

struct EdgeDots {
  EdgeGroups edges;
  int64_t heads, channels;
  const float* q;  // [num_targets, heads * channels]
  const float* k;  // [num_sources, heads * channels]
};

// out [num_edges, heads], in the caller's order.
void edge_dots(const EdgeDots& in, float* out, int num_threads);
// grad [num_edges, heads]; grad_q and grad_k have the shapes of q and k. Sums are made by one thread for a row.
void edge_dots_backward(const EdgeDots& in, const float* grad, float* grad_q, float* grad_k, int num_threads);

}  // namespace graphmill
