// What attention does to a tile of edges of one target, or one source. Lanes divide channels.
#pragma once
#include <cstdint>
#include <cstring>

#include "attention.h"
#include "attention_lanes.h"
#include "lanes.h"

namespace graphmill {
namespace {

// ---- tiles ----------------------------------------------------------------------------------------------------------

template <class T>
struct EdgeTile {
  int64_t count;
  const T* scores[kTileEdges];  // of the edges' other ends
  const T* values[kTileEdges];  // what is weighted and summed: of the sources x, of the targets the gradient of out
  const T* edges[kTileEdges];   // features
  T* alpha[kTileEdges];         // [heads]: first the logits, then what the softmax makes of them
  T* grads[kTileEdges];         // [heads]: of the logits
  T* edge_grads[kTileEdges];    // of the features, where they have one
  uint8_t* signs[kTileEdges];   // of the scores, where the gradient asks for them
  int64_t slots[kTileEdges], ids[kTileEdges];
};

template <class T>
struct Shape {
  explicit Shape(const Attention<T>& in)
      : heads(in.heads),
        channels(in.channels),
        scores(in.att ? in.channels : 1),
        values_width(heads * channels),
        scores_width(heads * scores) {}
  int64_t heads, channels, scores, values_width, scores_width;
};

template <class T>
inline void fetch(const T* row, int64_t n) {
  const char* bytes = reinterpret_cast<const char*>(row);
  const int64_t size = n * static_cast<int64_t>(sizeof(T));
  for (int64_t byte = 0; byte < size; byte += 64) __builtin_prefetch(bytes + byte);
  if (size % 64) __builtin_prefetch(bytes + size - 1);  // such rows begin anywhere in a line
}

template <class T>
inline void set_edge(const Attention<T>& in, EdgeTile<T>& tile, int64_t b, int64_t slot) {
  const EdgeGroups& edges = in.edges;
  const bool is_loop = slot >= edges.num_edges;
  tile.slots[b] = slot;
  tile.ids[b] = is_loop ? slot : edges.edge_ids[slot];
  tile.edges[b] = is_loop ? in.loop_attr + (slot - edges.num_edges) * in.edge_channels
                          : in.edge_attr + tile.ids[b] * in.edge_channels;
}

// Edges [from, from + kTileEdges) of those to `target`, of which there are `degree`, the loop last.
template <class T>
void incoming(const Attention<T>& in, const Shape<T>& shape, int64_t target, int64_t from, int64_t degree,
              EdgeTile<T>& tile) {
  const EdgeGroups& edges = in.edges;
  const int64_t first = edges.indptr[target] + from, end = edges.indptr[target + 1];
  const int64_t last = edges.indptr[edges.num_targets];
  tile.count = degree - from < kTileEdges ? degree - from : kTileEdges;
  for (int64_t b = 0; b < tile.count; ++b) {
    const bool is_loop = first + b >= end;
    const int64_t source = is_loop ? target : edges.sources[first + b];
    set_edge(in, tile, b, is_loop ? edges.num_edges + target : first + b);
    tile.scores[b] = in.source_scores + source * shape.scores_width;
    tile.values[b] = in.x + source * shape.values_width;
    if (const int64_t ahead = first + b + kTileEdges; ahead < last) {
      fetch(in.x + edges.sources[ahead] * shape.values_width, shape.values_width);
      fetch(in.edge_attr + edges.edge_ids[ahead] * in.edge_channels, in.edge_channels);
      if (!in.att) fetch(in.source_scores + edges.sources[ahead] * shape.scores_width, shape.scores_width);
    }
  }
}

// The same of the edges from `source`; what is summed is the gradient of the targets' results.
template <class T>
void outgoing(const Attention<T>& in, const Shape<T>& shape, const AttentionGrads<T>& grads, int64_t source,
              int64_t from, int64_t degree, EdgeTile<T>& tile) {
  const EdgeGroups& edges = in.edges;
  const int64_t first = edges.out_indptr[source] + from, end = edges.out_indptr[source + 1];
  const int64_t last = edges.out_indptr[edges.num_sources];
  tile.count = degree - from < kTileEdges ? degree - from : kTileEdges;
  for (int64_t b = 0; b < tile.count; ++b) {
    const bool is_loop = first + b >= end;
    const int64_t target = is_loop ? source : edges.targets[first + b];
    tile.slots[b] = is_loop ? edges.num_edges + source : edges.slots[first + b];
    tile.values[b] = grads.grad_out + target * shape.values_width;
    if (const int64_t ahead = first + b + kTileEdges; ahead < last) {
      fetch(grads.pairs + edges.slots[ahead] * 2 * in.heads, 2 * in.heads);
      fetch(grads.grad_out + edges.targets[ahead] * shape.values_width, shape.values_width);
      if (in.att) __builtin_prefetch(grads.signs + edges.slots[ahead] * grads.sign_bytes);
    }
  }
}

// ---- steps of a tile, by lanes --------------------------------------------------------------------------------------

// z[b] = scores[b] + own + edges[b] · weight, n values each, over Count edges.
template <class T, int L, int Count>
void add_scores_of(T* z, const T* const* scores, const T* const* edges, const T* own, const T* weight, int64_t n,
                   int64_t num_features) {
  for (int64_t v = 0; v < n; v += L) {
    const Lanes<T, L> fixed = lanes<L>(own + v);
    Lanes<T, L> sums[Count];
    for (int b = 0; b < Count; ++b) sums[b] = lanes<L>(scores[b] + v) + fixed;
    for (int64_t f = 0; f < num_features; ++f) {
      const Lanes<T, L> w = lanes<L>(weight + f * n + v);
      for (int b = 0; b < Count; ++b) sums[b] += w * edges[b][f];
    }
    for (int b = 0; b < Count; ++b) put(z + b * n + v, sums[b]);
  }
}
template <class T, int L>
void add_scores(T* z, const EdgeTile<T>& tile, const T* own, const T* weight, int64_t n, int64_t num_features) {
  in_groups(tile.count, [&](auto number, int64_t b) {
    add_scores_of<T, L, decltype(number)::value>(z + b * n, tile.scores + b, tile.edges + b, own, weight, n,
                                                 num_features);
  });
}

// logits[b, h] = <att[h], leaky(z[b, h])>.
template <class T, int L>
void score_logits(T* logits, const T* z, const T* att, T slope, int64_t count, int64_t heads, int64_t channels) {
  for (int64_t b = 0; b < count; ++b) {
    const T* weight = att;
    for (int64_t h = 0; h < heads; ++h, z += channels, weight += channels) {
      Lanes<T, L> sum{};
      for (int64_t c = 0; c < channels; c += L) sum += lanes<L>(weight + c) * leaky<T, L>(lanes<L>(z + c), slope);
      *logits++ = sum_of<T, L>(sum);
    }
  }
}

// to = leaky(from), without a branch: half of them are mispredicted.
template <class T, int L>
void leaky_rows(T* to, const T* from, T slope, int64_t count) {
  for (int64_t i = 0; i < count; i += L) put(to + i, leaky<T, L>(lanes<L>(from + i), slope));
}

// dots[b, h] = <rows[b, h], own[h]>.
template <class T, int L>
void head_dots(T* dots, const T* const* rows, const T* own, int64_t count, int64_t heads, int64_t channels) {
  for (int64_t b = 0; b < count; ++b) {
    const T *row = rows[b], *other = own;
    for (int64_t h = 0; h < heads; ++h, row += channels, other += channels) {
      Lanes<T, L> sum{};
      for (int64_t c = 0; c < channels; c += L) sum += lanes<L>(row + c) * lanes<L>(other + c);
      *dots++ = sum_of<T, L>(sum);
    }
  }
}

// sums[h] += weights[b][h] * rows[b, h], over Count edges.
template <class T, int L, int Count>
void add_weighted_of(T* sums, const T* const* weights, const T* const* rows, int64_t heads, int64_t channels) {
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t c = 0; c < channels; c += L) {
      const int64_t at = h * channels + c;
      Lanes<T, L> sum = lanes<L>(sums + at);
      for (int b = 0; b < Count; ++b) sum += weights[b][h] * lanes<L>(rows[b] + at);
      put(sums + at, sum);
    }
  }
}
template <class T, int L>
void add_weighted(T* sums, const T* const* weights, const T* const* rows, int64_t count, int64_t heads,
                  int64_t channels) {
  in_groups(count, [&](auto number, int64_t b) {
    add_weighted_of<T, L, decltype(number)::value>(sums, weights + b, rows + b, heads, channels);
  });
}

// rows[h] *= factors[h].
template <class T, int L>
void scale_heads(T* rows, const T* factors, int64_t heads, int64_t channels) {
  for (int64_t h = 0; h < heads; ++h, rows += channels)
    for (int64_t c = 0; c < channels; c += L) put(rows + c, lanes<L>(rows + c) * factors[h]);
}

// z[b, h] becomes its gradient, d[b][h] * att[h] * leaky'(z); `own` += it, grad_att[h] += d * leaky(z). Of z the signs
// are kept.
template <class T, int L>
void score_gradients(T* z, const T* const* d, const T* att, T slope, int64_t count, int64_t heads, int64_t channels,
                     T* own, T* grad_att, uint8_t* const* signs) {
  const Lanes<T, L> zero{}, one = zero + T{1}, slopes = zero + slope;
  const int64_t n = heads * channels;
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t c = 0; c < channels; c += L) {
      const int64_t at = h * channels + c;
      const Lanes<T, L> weight = lanes<L>(att + at);
      Lanes<T, L> sum = lanes<L>(own + at), of_att{};
      for (int64_t b = 0; b < count; ++b) {
        const Lanes<T, L> value = lanes<L>(z + b * n + at);
        put_bits<L>(signs[b], at, positive_bits<T, L>(value));
        const Lanes<T, L> steep = d[b][h] * (value > zero ? one : slopes);
        of_att += steep * value;
        const Lanes<T, L> grad = steep * weight;
        sum += grad;
        put(z + b * n + at, grad);
      }
      put(own + at, sum);
      put(grad_att + at, lanes<L>(grad_att + at) + of_att);
    }
  }
}

// own[h] += d[b][h] * att[h] * leaky'(z[b, h]), of whose z the signs are known.
template <class T, int L>
void add_signed(T* own, const uint8_t* const* signs, const T* const* d, const T* att, T slope, int64_t count,
                int64_t heads, int64_t channels) {
  const Lanes<T, L> zero{}, one = zero + T{1}, slopes = zero + slope;
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t c = 0; c < channels; c += L) {
      const int64_t at = h * channels + c;
      Lanes<T, L> sum{};
      for (int64_t b = 0; b < count; ++b) sum += d[b][h] * chosen<T, L>(bits_of<L>(signs[b], at), one, slopes);
      put(own + at, lanes<L>(own + at) + lanes<L>(att + at) * sum);
    }
  }
}

// grad_weight[f] += the sum of edges[b][f] * gz[b], n values each, over Count edges.
template <class T, int L, int Count>
void add_edge_products_of(T* grad_weight, const T* const* edges, const T* gz, int64_t n, int64_t num_features) {
  for (int64_t v = 0; v < n; v += L) {
    Lanes<T, L> rows[Count];
    for (int b = 0; b < Count; ++b) rows[b] = lanes<L>(gz + b * n + v);
    for (int64_t f = 0; f < num_features; ++f) {
      T* to = grad_weight + f * n + v;
      Lanes<T, L> sum = lanes<L>(to);
      for (int b = 0; b < Count; ++b) sum += rows[b] * edges[b][f];
      put(to, sum);
    }
  }
}
template <class T, int L>
void add_edge_products(T* grad_weight, const EdgeTile<T>& tile, const T* gz, int64_t n, int64_t num_features) {
  in_groups(tile.count, [&](auto number, int64_t b) {
    add_edge_products_of<T, L, decltype(number)::value>(grad_weight, tile.edges + b, gz + b * n, n, num_features);
  });
}

// to[b][f] = <gz[b], weight[f]>, of n values, over Count edges.
template <class T, int L, int Count>
void edge_gradients_of(T* const* to, const T* gz, const T* weight, int64_t n, int64_t num_features) {
  for (int64_t f = 0; f < num_features; ++f, weight += n) {
    Lanes<T, L> sums[Count] = {};
    for (int64_t v = 0; v < n; v += L) {
      const Lanes<T, L> w = lanes<L>(weight + v);
      for (int b = 0; b < Count; ++b) sums[b] += w * lanes<L>(gz + b * n + v);
    }
    for (int b = 0; b < Count; ++b) to[b][f] = sum_of<T, L>(sums[b]);
  }
}
template <class T, int L>
void edge_gradients(const EdgeTile<T>& tile, const T* gz, const T* weight, int64_t n, int64_t num_features) {
  in_groups(tile.count, [&](auto number, int64_t b) {
    edge_gradients_of<T, L, decltype(number)::value>(tile.edge_grads + b, gz + b * n, weight, n, num_features);
  });
}

// The running maximum of the logits [count, heads]: peak grows, shrink = old peak - new peak, logits -= new peak.
template <class T, int L>
void subtract_peak(T* logits, int64_t count, int64_t heads, T* peak, T* shrink) {
  for (int64_t h = 0; h < heads; h += L) {
    const Lanes<T, L> before = lanes<L>(peak + h);
    Lanes<T, L> most = before;
    for (int64_t b = 0; b < count; ++b) {
      const Lanes<T, L> logit = lanes<L>(logits + b * heads + h);
      most = logit > most ? logit : most;
    }
    put(peak + h, most);
    const Lanes<T, L> same{};
    put(shrink + h, most > before ? before - most : same);
    for (int64_t b = 0; b < count; ++b) put(logits + b * heads + h, lanes<L>(logits + b * heads + h) - most);
  }
}

// sums += rows [count, heads].
template <class T, int L>
void add_head_rows(T* sums, const T* const* rows, int64_t count, int64_t heads) {
  for (int64_t h = 0; h < heads; h += L) {
    Lanes<T, L> sum = lanes<L>(sums + h);
    for (int64_t b = 0; b < count; ++b) sum += lanes<L>(rows[b] + h);
    put(sums + h, sum);
  }
}

// rows [count, heads] -= less.
template <class T, int L>
void subtract_row(T* rows, const T* less, int64_t count, int64_t heads) {
  for (int64_t h = 0; h < heads; h += L) {
    const Lanes<T, L> own = lanes<L>(less + h);
    for (int64_t b = 0; b < count; ++b) put(rows + b * heads + h, lanes<L>(rows + b * heads + h) - own);
  }
}

// Of one edge: alpha = power * kept, and dots becomes the gradient of the logit, power * (kept * dot - agreement),
// which without `att` is led on through leaky(z). A null `kept` is 1.
template <class T, int L>
void logit_gradient(T* alpha, T* grad, T* dots, const T* powers, const T* kept, const T* agreement, const T* z, T slope,
                    int64_t heads) {
  const Lanes<T, L> zero{}, one = zero + T{1}, slopes = zero + slope;
  for (int64_t h = 0; h < heads; h += L) {
    const Lanes<T, L> power = lanes<L>(powers + h), factor = kept ? lanes<L>(kept + h) : one;
    Lanes<T, L> of_logit = power * (factor * lanes<L>(dots + h) - lanes<L>(agreement + h));
    if (z) of_logit *= lanes<L>(z + h) > zero ? one : slopes;
    put(alpha + h, power * factor);
    put(grad + h, of_logit);
    put(dots + h, of_logit);
  }
}

template <class T>
struct TileSteps {
  void (*add_scores)(T*, const EdgeTile<T>&, const T*, const T*, int64_t, int64_t);
  void (*add_edge_products)(T*, const EdgeTile<T>&, const T*, int64_t, int64_t);
  void (*edge_gradients)(const EdgeTile<T>&, const T*, const T*, int64_t, int64_t);
  void (*score_logits)(T*, const T*, const T*, T, int64_t, int64_t, int64_t);
  void (*score_gradients)(T*, const T* const*, const T*, T, int64_t, int64_t, int64_t, T*, T*, uint8_t* const*);
  void (*add_signed)(T*, const uint8_t* const*, const T* const*, const T*, T, int64_t, int64_t, int64_t);
  void (*head_dots)(T*, const T* const*, const T*, int64_t, int64_t, int64_t);
  void (*add_weighted)(T*, const T* const*, const T* const*, int64_t, int64_t, int64_t);

  void (*leaky_rows)(T*, const T*, T, int64_t);
  void (*scale_heads)(T*, const T*, int64_t, int64_t);
  void (*subtract_peak)(T*, int64_t, int64_t, T*, T*);
  void (*add_head_rows)(T*, const T* const*, int64_t, int64_t);
  void (*subtract_row)(T*, const T*, int64_t, int64_t);
  void (*logit_gradient)(T*, T*, T*, const T*, const T*, const T*, const T*, T, int64_t);

  template <int L>
  void take_heads() {
    leaky_rows = graphmill::leaky_rows<T, L>;
    subtract_peak = graphmill::subtract_peak<T, L>;
    add_head_rows = graphmill::add_head_rows<T, L>;
    subtract_row = graphmill::subtract_row<T, L>;
    logit_gradient = graphmill::logit_gradient<T, L>;
  }
  template <int L>
  void take_scores() {
    add_scores = graphmill::add_scores<T, L>;
    add_edge_products = graphmill::add_edge_products<T, L>;
    edge_gradients = graphmill::edge_gradients<T, L>;
  }
  template <int L>
  void take_channels() {
    score_logits = graphmill::score_logits<T, L>;
    score_gradients = graphmill::score_gradients<T, L>;
    add_signed = graphmill::add_signed<T, L>;
    head_dots = graphmill::head_dots<T, L>;
    add_weighted = graphmill::add_weighted<T, L>;
    scale_heads = graphmill::scale_heads<T, L>;
  }
  explicit TileSteps(const Shape<T>& shape) {
    constexpr int kMost = kBytes / sizeof(T) < 4 ? 4 : kBytes / sizeof(T);
    if (shape.scores_width % kMost == 0) take_scores<kMost>();
    else if (shape.scores_width % 8 == 0) take_scores<8>();
    else if (shape.scores_width % 4 == 0) take_scores<4>();
    else take_scores<1>();
    if (shape.channels % kMost == 0) take_channels<kMost>();
    else if (shape.channels % 8 == 0) take_channels<8>();
    else if (shape.channels % 4 == 0) take_channels<4>();
    else take_channels<1>();
    if (shape.heads % 8 == 0) take_heads<8>();
    else if (shape.heads % 4 == 0) take_heads<4>();
    else if (shape.heads % 2 == 0) take_heads<2>();
    else take_heads<1>();
  }
};

}  // namespace
}  // namespace graphmill
