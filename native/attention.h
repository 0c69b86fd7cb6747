// Attention over the edges that point to each target, GAT and GATv2 alike:
//
//   z[e, h]     = source_scores[j, h] + target_scores[i, h] + edge[e] · edge_weight[:, h]      for an edge e from j to
//   i logit[e, h] = <att[h], leaky(z[e, h])>; without `att` there is one score a head, and the logit is leaky(z)
//   alpha[e, h] = softmax of the logits over the edges to i, then dropout keyed by (key, edge id, head)
//   out[i, h]   = the sum of alpha[e, h] * x[j, h]
//
// GATv2 (Brody, Alon, Yahav 2022, eq. 7) scores with all channels, its source scores are x itself. GAT (Velickovic et
// al. 2018, eq. 1-4) has one score a head. Nothing of the size edges * heads * channels is ever held: a tile of a few
// edges is scored, used and forgotten, forward and backward.
#pragma once
#include <cstdint>

namespace graphmill {

struct EdgeGroups {  // edges by target, and by source
  int64_t num_sources, num_targets, num_edges;
  int64_t num_loops;          // node i < num_loops has an edge to itself besides, whose id is num_edges + i
  const int64_t* indptr;      // [num_targets + 1]
  const int32_t* sources;     // [num_edges]: where the edge of a slot comes from
  const int32_t* edge_ids;    // [num_edges]: its place in the caller's order
  const int64_t* out_indptr;  // [num_sources + 1]; this and the next two are null where no gradient is asked for
  const int32_t* targets;     // [num_edges]: where the edges of a source lead to
  const int32_t* slots;       // [num_edges]: and their slots
};

template <class T>
struct Attention {
  EdgeGroups edges;
  int64_t heads, channels, edge_channels;
  const T* x;              // [num_sources, heads * channels]
  const T* source_scores;  // [num_sources, heads * scores]; x itself where there is `att`
  const T* target_scores;  // [num_targets, heads * scores]
  const T* edge_attr;      // [num_edges, edge_channels]
  const T* loop_attr;      // [num_loops, edge_channels]
  const T* edge_weight;    // [edge_channels, heads * scores]
  const T* att;            // [heads * scores] with scores = channels; or null: scores = 1
  T negative_slope;
  const uint64_t* key;  // of dropout, or null for none
  uint32_t threshold;   // an edge's head is dropped if its 32-bit draw is below this
  T scale;              // 1 / (1 - p)
};

template <class T>
struct AttentionGrads {
  const T *grad_out, *out;  // [num_targets, heads * channels]
  const T* lse;             // [num_targets, heads]: log of the sum of e^logit
  T* pairs;                 // [num_edges + num_loops, 2, heads]: alpha and the gradient of the logit, by slot; scratch
  uint8_t* signs;           // [num_edges + num_loops, sign_bytes]: a bit a score, whether it is positive; scratch
  int64_t sign_bytes;
  T* x;
  T* source_scores;  // null where there is `att`
  T* target_scores;
  T *edge_attr, *loop_attr;  // null where they are not asked for
  T *edge_weight, *att;      // null where there is none
};

// Group the edges sources[e] → targets[e]; edges from a node to itself are left out if there are num_loops. What is
// left begins each array, the rest of them is zero. The last three may be null.
void group_edges(const int64_t* sources, const int64_t* targets, const EdgeGroups& sizes, int64_t* indptr,
                 int32_t* by_target, int32_t* edge_ids, int64_t* out_indptr, int32_t* by_source, int32_t* slots);

template <class T>
void attention(const Attention<T>& in, T* out, T* lse, int num_threads);
template <class T>
void attention_weights(const Attention<T>& in, const T* lse, T* alpha, int num_threads);
// The sums for weight and att are made over fixed shares of the edges, and added up in their order.
template <class T>
void attention_backward(const Attention<T>& in, AttentionGrads<T> grads, int num_threads);

}  // namespace graphmill
