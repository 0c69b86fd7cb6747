#include "attention.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels.h"
#include "pool.h"

namespace graphmill {

namespace {

template <class T>
const AttentionKernels<T>& kernels_of();
template <>
const AttentionKernels<float>& kernels_of<float>() {
  return kernels().attention_float;
}
template <>
const AttentionKernels<double>& kernels_of<double>() {
  return kernels().attention_double;
}

// Rows [bounds[i], bounds[i + 1]) hold about equally many edges: a function of the graph, not of the threads.
std::vector<int64_t> shares(const int64_t* indptr, int64_t num_rows) {
  constexpr int64_t kMost = 256, kEdges = 1024;
  const int64_t size = indptr[num_rows] + num_rows;
  const int64_t count = std::clamp<int64_t>(size / kEdges, 1, kMost);
  std::vector<int64_t> bounds{0};
  for (int64_t row = 0, share = 1; row < num_rows && share < count; ++row) {
    if (indptr[row + 1] + row + 1 < share * size / count) continue;
    bounds.push_back(row + 1);
    while (share < count && indptr[row + 1] + row + 1 >= share * size / count) ++share;
  }
  if (bounds.back() < num_rows || bounds.size() == 1) bounds.push_back(num_rows);
  return bounds;
}

// body(share, begin, end, scratch) for every share of the rows.
template <class T, class Body>
void for_shares(const Attention<T>& in, const std::vector<int64_t>& bounds, int num_threads, const Body& body) {
  const int64_t size = kTileEdges * in.heads * ((in.att ? in.channels : 1) + 3) + 3 * in.heads;
  ThreadPool::instance().parallel_for(static_cast<int64_t>(bounds.size()) - 1, 1, num_threads,
                                      [&](int64_t begin, int64_t end) {
                                        const std::unique_ptr<T[]> scratch(new T[size]);
                                        for (int64_t share = begin; share < end; ++share)
                                          body(share, bounds[share], bounds[share + 1], scratch.get());
                                      });
}

// The lengths of rows become where each begins.
void start_rows(int64_t* indptr, int64_t num_rows) {
  int64_t total = 0;
  for (int64_t row = 0; row <= num_rows; ++row) {
    const int64_t length = indptr[row];
    indptr[row] = total;
    total += length;
  }
}

// Rows that were filled by moving where they begin, as they were.
void restore_rows(int64_t* indptr, int64_t num_rows) {
  std::memmove(indptr + 1, indptr, num_rows * sizeof(int64_t));
  indptr[0] = 0;
}

}  // namespace

void group_edges(const int64_t* sources, const int64_t* targets, const EdgeGroups& sizes, int64_t* indptr,
                 int32_t* by_target, int32_t* edge_ids, int64_t* out_indptr, int32_t* by_source, int32_t* slots) {
  const auto is_left_out = [&](int64_t e) { return sizes.num_loops && sources[e] == targets[e]; };
  std::fill_n(indptr, sizes.num_targets + 1, 0);
  for (int64_t e = 0; e < sizes.num_edges; ++e) {
    if (sources[e] < 0 || sources[e] >= sizes.num_sources || targets[e] < 0 || targets[e] >= sizes.num_targets)
      throw std::invalid_argument("edge " + std::to_string(e) + " leads from node " + std::to_string(sources[e]) +
                                  " of " + std::to_string(sizes.num_sources) + " to node " +
                                  std::to_string(targets[e]) + " of " + std::to_string(sizes.num_targets));
    if (!is_left_out(e)) ++indptr[targets[e]];
  }
  start_rows(indptr, sizes.num_targets);
  for (int64_t e = 0; e < sizes.num_edges; ++e) {
    if (is_left_out(e)) continue;
    const int64_t at = indptr[targets[e]]++;
    by_target[at] = static_cast<int32_t>(sources[e]);
    edge_ids[at] = static_cast<int32_t>(e);
  }
  restore_rows(indptr, sizes.num_targets);
  const int64_t count = indptr[sizes.num_targets];
  std::fill(by_target + count, by_target + sizes.num_edges, 0);
  std::fill(edge_ids + count, edge_ids + sizes.num_edges, 0);
  if (!out_indptr) return;
  std::fill_n(out_indptr, sizes.num_sources + 1, 0);
  for (int64_t slot = 0; slot < count; ++slot) ++out_indptr[by_target[slot]];
  start_rows(out_indptr, sizes.num_sources);
  for (int64_t target = 0; target < sizes.num_targets; ++target) {
    for (int64_t slot = indptr[target]; slot < indptr[target + 1]; ++slot) {
      const int64_t at = out_indptr[by_target[slot]]++;
      by_source[at] = static_cast<int32_t>(target);
      slots[at] = static_cast<int32_t>(slot);
    }
  }
  restore_rows(out_indptr, sizes.num_sources);
  std::fill(by_source + count, by_source + sizes.num_edges, 0);
  std::fill(slots + count, slots + sizes.num_edges, 0);
}

template <class T>
void attention(const Attention<T>& in, T* out, T* lse, int num_threads) {
  for_shares(in, shares(in.edges.indptr, in.edges.num_targets), num_threads,
             [&](int64_t, int64_t begin, int64_t end, T* scratch) {
               kernels_of<T>().forward(in, begin, end, out, lse, scratch);
             });
}

template <class T>
void attention_weights(const Attention<T>& in, const T* lse, T* alpha, int num_threads) {
  for_shares(in, shares(in.edges.indptr, in.edges.num_targets), num_threads,
             [&](int64_t, int64_t begin, int64_t end, T* scratch) {
               kernels_of<T>().weights(in, begin, end, lse, alpha, scratch);
             });
}

template <class T>
void attention_backward(const Attention<T>& in, AttentionGrads<T> grads, int num_threads) {
  const int64_t scores_width = in.heads * (in.att ? in.channels : 1);
  // Sources need of an edge's scores no more than on which side of 0 they are: a bit each, and no edge is scored again.
  grads.sign_bytes = in.att ? (scores_width + 7) / 8 : 0;
  const std::unique_ptr<uint8_t[]> signs(new uint8_t[(in.edges.num_edges + in.edges.num_loops) * grads.sign_bytes]);
  grads.signs = signs.get();
  const int64_t num_sums = (in.edge_channels + (in.att ? 1 : 0)) * scores_width;
  const std::vector<int64_t> by_target = shares(in.edges.indptr, in.edges.num_targets);
  std::vector<T> partials((by_target.size() - 1) * num_sums, T{0});
  for_shares(in, by_target, num_threads, [&](int64_t share, int64_t begin, int64_t end, T* scratch) {
    kernels_of<T>().backward_targets(in, begin, end, grads, partials.data() + share * num_sums, scratch);
  });
  for_shares(in, shares(in.edges.out_indptr, in.edges.num_sources), num_threads,
             [&](int64_t, int64_t begin, int64_t end, T* scratch) {
               kernels_of<T>().backward_sources(in, begin, end, grads, scratch);
             });
  const auto add_up = [&](T* to, int64_t first, int64_t count) {
    std::fill_n(to, count, T{0});
    for (size_t at = first; at < partials.size(); at += num_sums)
      for (int64_t i = 0; i < count; ++i) to[i] += partials[at + i];
  };
  if (in.edge_channels) add_up(grads.edge_weight, 0, in.edge_channels * scores_width);
  if (in.att) add_up(grads.att, in.edge_channels * scores_width, scores_width);
}

template void attention<float>(const Attention<float>&, float*, float*, int);
template void attention<double>(const Attention<double>&, double*, double*, int);
template void attention_weights<float>(const Attention<float>&, const float*, float*, int);
template void attention_weights<double>(const Attention<double>&, const double*, double*, int);
template void attention_backward<float>(const Attention<float>&, AttentionGrads<float>, int);
template void attention_backward<double>(const Attention<double>&, AttentionGrads<double>, int);

}  // namespace graphmill
