#include "edge_dots.h"

#include <algorithm>

#include "kernels.h"
#include "pool.h"

namespace graphmill {

namespace {

constexpr int64_t kRowsPerChunk = 64;

}  // namespace

void edge_dots(const EdgeDots& in, float* out, int num_threads) {
  const EdgeGroups& edges = in.edges;
  const int64_t width = in.heads * in.channels;
  ThreadPool::instance().parallel_for(edges.num_targets, kRowsPerChunk, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t target = begin; target < end; ++target)
      for (int64_t slot = edges.indptr[target]; slot < edges.indptr[target + 1]; ++slot)
        kernels().rows.dot_heads(out + edges.edge_ids[slot] * in.heads, in.q + target * width,
                                 in.k + edges.sources[slot] * width, in.heads, in.channels);
  });
}

void edge_dots_backward(const EdgeDots& in, const float* grad, float* grad_q, float* grad_k, int num_threads) {
  const EdgeGroups& edges = in.edges;
  const int64_t width = in.heads * in.channels;
  ThreadPool::instance().parallel_for(edges.num_targets, kRowsPerChunk, num_threads, [&](int64_t begin, int64_t end) {
    std::fill_n(grad_q + begin * width, (end - begin) * width, 0.0f);
    for (int64_t target = begin; target < end; ++target)
      for (int64_t slot = edges.indptr[target]; slot < edges.indptr[target + 1]; ++slot)
        kernels().rows.add_heads(grad_q + target * width, in.k + edges.sources[slot] * width,
                                 grad + edges.edge_ids[slot] * in.heads, in.heads, in.channels);
  });
  ThreadPool::instance().parallel_for(edges.num_sources, kRowsPerChunk, num_threads, [&](int64_t begin, int64_t end) {
    std::fill_n(grad_k + begin * width, (end - begin) * width, 0.0f);
    for (int64_t source = begin; source < end; ++source)
      for (int64_t e = edges.out_indptr[source]; e < edges.out_indptr[source + 1]; ++e)
        kernels().rows.add_heads(grad_k + source * width, in.q + edges.targets[e] * width,
                                 grad + edges.edge_ids[edges.slots[e]] * in.heads, in.heads, in.channels);
  });
}

}  // namespace graphmill
