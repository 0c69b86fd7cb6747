// Attention, forward and backward, a tile of edges at a time.
#include "attention.h"

#include <cstdint>
#include <cstring>

#include "../shared/random.h"
#include "attention_lanes.h"
#include "attention_tiles.h"
#include "dropout.h"
#include "exponential.h"
#include "vectors.h"

namespace graphmill {
namespace {

inline void exponentials(float* values, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes)
    store_some(values + i, exponential(load_some(values + i, count - i)), count - i);
}
inline void exponentials(double* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = __builtin_exp(values[i]);
}
inline float logarithm(float x) { return __builtin_logf(x); }
inline double logarithm(double x) { return __builtin_log(x); }

// ---- a tile's logits and dropout ------------------------------------------------------------------------------------

template <class T>
struct TileWork {  // of one thread
  TileWork(const Attention<T>& attention, T* scratch)
      : in(attention),
        shape(attention),
        steps(shape),
        z(scratch),
        logits(z + kTileEdges * shape.scores_width),
        dots(logits + kTileEdges * shape.heads),
        kept(dots + kTileEdges * shape.heads),
        by_head(kept + kTileEdges * shape.heads) {
    for (int64_t b = 0; b < kTileEdges; ++b) {
      tile.alpha[b] = logits + b * shape.heads;
      tile.grads[b] = dots + b * shape.heads;
    }
  }

  void score(const T* own) {
    steps.add_scores(z, tile, own, in.edge_weight, shape.scores_width, in.edge_channels);
    if (in.att) {
      steps.score_logits(logits, z, in.att, in.negative_slope, tile.count, shape.heads, shape.channels);
    } else {
      steps.leaky_rows(logits, z, in.negative_slope, tile.count * shape.heads);
    }
  }
  // kept[b, h]: 1 / (1 - p), or 0 where alpha is dropped.
  void draw() {
    for (int64_t b = 0; b < tile.count; ++b) {
      const uint64_t key = subkey(*in.key, tile.ids[b]);
      for (int64_t h = 0; h < shape.heads; ++h) {
        const uint32_t bits =
            draw_bits(static_cast<uint32_t>(h), static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
        kept[b * shape.heads + h] = bits >= in.threshold ? in.scale : T{0};
      }
    }
  }
  // logits become e^(logit - less[h]).
  void exponentiate(const T* less) {
    steps.subtract_row(logits, less, tile.count, shape.heads);
    exponentials(logits, tile.count * shape.heads);
  }

  const Attention<T>& in;
  const Shape<T> shape;
  const TileSteps<T> steps;
  EdgeTile<T> tile;
  T *z, *logits, *dots, *kept;
  T* by_head;  // three more values a head
};

inline int64_t degree_of(const int64_t* indptr, int64_t row, int64_t num_loops) {
  return indptr[row + 1] - indptr[row] + (row < num_loops);
}

// ---- forward --------------------------------------------------------------------------------------------------------

// The softmax's running maximum and sum, a tile at a time (Milakov & Gimelshein 2018): what was summed before is scaled
// when the maximum grows.
template <class T>
void add_tile(TileWork<T>& work, bool is_first, T* sums, T* peak, T* total, T* factor) {
  const int64_t heads = work.shape.heads, count = work.tile.count;
  work.steps.subtract_peak(work.logits, count, heads, peak, factor);
  if (!is_first) {
    exponentials(factor, heads);
    for (int64_t h = 0; h < heads; ++h) total[h] *= factor[h];
    work.steps.scale_heads(sums, factor, heads, work.shape.channels);
  }
  exponentials(work.logits, count * heads);
  work.steps.add_head_rows(total, work.tile.alpha, count, heads);
  if (work.in.key) {
    work.draw();
    for (int64_t i = 0; i < count * heads; ++i) work.logits[i] *= work.kept[i];
  }
  work.steps.add_weighted(sums, work.tile.alpha, work.tile.values, count, heads, work.shape.channels);
}

template <class T>
void attention_forward(const Attention<T>& in, int64_t begin, int64_t end, T* out, T* lse, T* scratch) {
  TileWork<T> work(in, scratch);
  const Shape<T>& shape = work.shape;
  T *total = work.by_head, *factor = total + shape.heads;
  for (int64_t target = begin; target < end; ++target) {
    T *sums = out + target * shape.values_width, *peak = lse + target * shape.heads;
    memset(sums, 0, shape.values_width * sizeof(T));
    memset(total, 0, shape.heads * sizeof(T));
    for (int64_t h = 0; h < shape.heads; ++h) peak[h] = -__builtin_inf();
    const int64_t degree = degree_of(in.edges.indptr, target, in.edges.num_loops);
    for (int64_t from = 0; from < degree; from += kTileEdges) {
      incoming(in, shape, target, from, degree, work.tile);
      work.score(in.target_scores + target * shape.scores_width);
      add_tile(work, from == 0, sums, peak, total, factor);
    }
    if (!degree) continue;
    for (int64_t h = 0; h < shape.heads; ++h) {
      factor[h] = 1 / total[h];
      peak[h] += logarithm(total[h]);
    }
    work.steps.scale_heads(sums, factor, shape.heads, shape.channels);
  }
}

template <class T>
void attention_weights_of(const Attention<T>& in, int64_t begin, int64_t end, const T* lse, T* alpha, T* scratch) {
  TileWork<T> work(in, scratch);
  const int64_t heads = in.heads;
  for (int64_t target = begin; target < end; ++target) {
    const int64_t degree = degree_of(in.edges.indptr, target, in.edges.num_loops);
    for (int64_t from = 0; from < degree; from += kTileEdges) {
      incoming(in, work.shape, target, from, degree, work.tile);
      work.score(in.target_scores + target * work.shape.scores_width);
      work.exponentiate(lse + target * heads);
      if (in.key) {
        work.draw();
        for (int64_t i = 0; i < work.tile.count * heads; ++i) work.logits[i] *= work.kept[i];
      }
      for (int64_t b = 0; b < work.tile.count; ++b)
        memcpy(alpha + work.tile.ids[b] * heads, work.logits + b * heads, heads * sizeof(T));
    }
  }
}

// ---- backward -------------------------------------------------------------------------------------------------------

// From the logits: alpha after dropout, and the gradient of the logit, alpha * (kept * <grad, x> - <grad, out>), both
// put where the sources' half finds them. Without `att` the second is also left in `dots`, tile after tile.
template <class T>
void logit_gradients(TileWork<T>& work, const T* lse, const T* grad, const T* agreement, T* pairs) {
  const int64_t heads = work.shape.heads, count = work.tile.count;
  work.exponentiate(lse);
  work.steps.head_dots(work.dots, work.tile.values, grad, count, heads, work.shape.channels);
  if (work.in.key) work.draw();
  for (int64_t b = 0; b < count; ++b) {
    T* alpha = pairs + work.tile.slots[b] * 2 * heads;
    work.steps.logit_gradient(alpha, alpha + heads, work.dots + b * heads, work.logits + b * heads,
                              work.in.key ? work.kept + b * heads : nullptr, agreement,
                              work.in.att ? nullptr : work.z + b * heads, work.in.negative_slope, heads);
  }
}

// The gradient of the edges' features from that of their scores.
template <class T>
void feature_gradients(TileWork<T>& work, const T* gz, const AttentionGrads<T>& grads) {
  const int64_t num_features = work.in.edge_channels, num_edges = work.in.edges.num_edges;
  for (int64_t b = 0; b < work.tile.count; ++b) {
    const int64_t id = work.tile.ids[b];
    // Null is what no edge, or no loop, has a gradient in.
    // NOLINTNEXTLINE(clang-analyzer-core.NullPointerArithm)
    T* to = id < num_edges ? grads.edge_attr + id * num_features : grads.loop_attr + (id - num_edges) * num_features;
    work.tile.edge_grads[b] = to;
  }
  work.steps.edge_gradients(work.tile, gz, work.in.edge_weight, work.shape.scores_width, num_features);
}

template <class T>
void attention_backward_targets(const Attention<T>& in, int64_t begin, int64_t end, const AttentionGrads<T>& grads,
                                T* partial, T* scratch) {
  TileWork<T> work(in, scratch);
  const Shape<T>& shape = work.shape;
  T *agreement = work.by_head, *grad_att = partial + in.edge_channels * shape.scores_width;
  for (int64_t target = begin; target < end; ++target) {
    const T *grad = grads.grad_out + target * shape.values_width, *out = grads.out + target * shape.values_width;
    T* own = grads.target_scores + target * shape.scores_width;
    memset(own, 0, shape.scores_width * sizeof(T));
    work.steps.head_dots(agreement, &out, grad, 1, shape.heads, shape.channels);
    const int64_t degree = degree_of(in.edges.indptr, target, in.edges.num_loops);
    for (int64_t from = 0; from < degree; from += kTileEdges) {
      incoming(in, shape, target, from, degree, work.tile);
      work.score(in.target_scores + target * shape.scores_width);
      logit_gradients(work, grads.lse + target * shape.heads, grad, agreement, grads.pairs);
      const T* gz = in.att ? work.z : work.dots;
      if (in.att) {
        for (int64_t b = 0; b < work.tile.count; ++b)
          work.tile.signs[b] = grads.signs + work.tile.slots[b] * grads.sign_bytes;
        work.steps.score_gradients(work.z, work.tile.grads, in.att, in.negative_slope, work.tile.count, shape.heads,
                                   shape.channels, own, grad_att, work.tile.signs);
      } else {
        work.steps.add_head_rows(own, work.tile.grads, work.tile.count, shape.heads);
      }
      if (in.edge_channels) work.steps.add_edge_products(partial, work.tile, gz, shape.scores_width, in.edge_channels);
      if (grads.edge_attr || grads.loop_attr) feature_gradients(work, gz, grads);
    }
  }
}

template <class T>
void attention_backward_sources(const Attention<T>& in, int64_t begin, int64_t end, const AttentionGrads<T>& grads,
                                T* scratch) {
  TileWork<T> work(in, scratch);
  const Shape<T>& shape = work.shape;
  const int64_t heads = shape.heads;
  for (int64_t source = begin; source < end; ++source) {
    T* own = grads.x + source * shape.values_width;
    T* of_scores = in.att ? own : grads.source_scores + source * shape.scores_width;
    memset(own, 0, shape.values_width * sizeof(T));
    if (!in.att) memset(of_scores, 0, shape.scores_width * sizeof(T));
    const int64_t degree = degree_of(in.edges.out_indptr, source, in.edges.num_loops);
    for (int64_t from = 0; from < degree; from += kTileEdges) {
      outgoing(in, shape, grads, source, from, degree, work.tile);
      for (int64_t b = 0; b < work.tile.count; ++b) {
        work.tile.alpha[b] = grads.pairs + work.tile.slots[b] * 2 * heads;
        work.tile.grads[b] = work.tile.alpha[b] + heads;
        if (in.att) work.tile.signs[b] = grads.signs + work.tile.slots[b] * grads.sign_bytes;
      }
      work.steps.add_weighted(own, work.tile.alpha, work.tile.values, work.tile.count, heads, shape.channels);
      if (in.att) {
        work.steps.add_signed(of_scores, work.tile.signs, work.tile.grads, in.att, in.negative_slope, work.tile.count,
                              shape.heads, shape.channels);
      } else {
        work.steps.add_head_rows(of_scores, work.tile.grads, work.tile.count, heads);
      }
    }
  }
}

}  // namespace

namespace GRAPHMILL_ISA {

extern const AttentionKernels<float> attention_float;
const AttentionKernels<float> attention_float = {attention_forward<float>, attention_weights_of<float>,
                                                 attention_backward_targets<float>, attention_backward_sources<float>};
extern const AttentionKernels<double> attention_double;
const AttentionKernels<double> attention_double = {attention_forward<double>, attention_weights_of<double>,
                                                   attention_backward_targets<double>,
                                                   attention_backward_sources<double>};

}  // namespace GRAPHMILL_ISA
}  // namespace graphmill
