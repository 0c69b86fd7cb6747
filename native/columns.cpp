#include "columns.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "pool.h"

namespace graphmill {

namespace {

constexpr int64_t kRowsPerChunk = 1024;
constexpr int64_t kEdgesAhead = 32;  // edges whose counter is fetched ahead of its use

template <class Id>
void check_ends(const Id* ids, int64_t count, int64_t num_nodes, const char* end) {
  bool inside = true;
  for (int64_t i = 0; i < count; ++i) inside &= static_cast<uint64_t>(ids[i]) < static_cast<uint64_t>(num_nodes);
  if (inside) return;
  int64_t at = 0;
  while (static_cast<uint64_t>(ids[at]) < static_cast<uint64_t>(num_nodes)) ++at;
  throw std::invalid_argument("edge " + std::to_string(at) + " has the " + end + " " + std::to_string(ids[at]) +
                              ", and there are " + std::to_string(num_nodes) + " such nodes");
}

// begins[i + 1]: how many ids are at most i.
template <class Id>
void count_up(const Id* ids, int64_t count, int64_t num_nodes, int64_t* begins) {
  std::fill_n(begins, num_nodes + 1, 0);
  for (int64_t i = 0; i < count; ++i) {
    if (i + kEdgesAhead < count) __builtin_prefetch(begins + ids[i + kEdgesAhead] + 1, 1);
    ++begins[ids[i] + 1];
  }
  std::partial_sum(begins, begins + num_nodes + 1, begins);
}

template <class Id>
bool in_order(const EdgeList<Id>& edges) {
  for (int64_t i = 1; i < edges.count; ++i)
    if (edges.targets[i] < edges.targets[i - 1] ||
        (edges.targets[i] == edges.targets[i - 1] && edges.sources[i] < edges.sources[i - 1]))
      return false;
  return true;
}

}  // namespace

template <class Id>
bool compress(const EdgeList<Id>& edges, int64_t* indptr, int32_t* indices, int64_t* order, int num_threads) {
  const int64_t count = edges.count;
  check_ends(edges.sources, count, edges.num_sources, "source");
  check_ends(edges.targets, count, edges.num_targets, "target");
  count_up(edges.targets, count, edges.num_targets, indptr);
  if (in_order(edges)) {
    for (int64_t i = 0; i < count; ++i) indices[i] = static_cast<int32_t>(edges.sources[i]);
    return true;
  }
  std::vector<int64_t> by_source;  // edges as they come by source; empty: as they are given
  if (!std::is_sorted(edges.sources, edges.sources + count)) {
    std::vector<int64_t> next(edges.num_sources + 1);
    count_up(edges.sources, count, edges.num_sources, next.data());
    by_source.resize(count);
    for (int64_t i = 0; i < count; ++i) {
      if (i + kEdgesAhead < count) __builtin_prefetch(next.data() + edges.sources[i + kEdgesAhead], 1);
      by_source[next[edges.sources[i]]++] = i;
    }
  }
  std::vector<int64_t> next(indptr, indptr + edges.num_targets);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t edge = by_source.empty() ? i : by_source[i];
    if (!by_source.empty() && i + kEdgesAhead < count) __builtin_prefetch(edges.targets + by_source[i + kEdgesAhead]);
    order[next[edges.targets[edge]]++] = edge;
  }
  ThreadPool::instance().parallel_for(count, kRowsPerChunk * 64, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + kEdgesAhead < end) __builtin_prefetch(edges.sources + order[i + kEdgesAhead]);
      indices[i] = static_cast<int32_t>(edges.sources[order[i]]);
    }
  });
  return false;
}

template bool compress(const EdgeList<int32_t>&, int64_t*, int32_t*, int64_t*, int);
template bool compress(const EdgeList<int64_t>&, int64_t*, int32_t*, int64_t*, int);

void sort_rows_by_time(const int64_t* indptr, int64_t num_rows, int32_t* indices, int64_t* order, int64_t* times,
                       int num_threads) {
  struct Entry {
    int64_t time, order;
    int32_t index;
  };
  ThreadPool::instance().parallel_for(num_rows, kRowsPerChunk, num_threads, [&](int64_t begin, int64_t end) {
    std::vector<Entry> row;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = indptr[i], last = indptr[i + 1];
      if (std::is_sorted(times + first, times + last)) continue;
      row.clear();
      for (int64_t e = first; e < last; ++e) row.push_back({times[e], order[e], indices[e]});
      std::stable_sort(row.begin(), row.end(), [](const Entry& a, const Entry& b) { return a.time < b.time; });
      for (int64_t e = first; e < last; ++e) {
        times[e] = row[e - first].time;
        order[e] = row[e - first].order;
        indices[e] = row[e - first].index;
      }
    }
  });
}

void accumulate_weights(const int64_t* indptr, int64_t num_rows, const double* weights, double* cumulative) {
  for (int64_t row = 0; row < num_rows; ++row) {
    double sum = 0;
    for (int64_t e = indptr[row]; e < indptr[row + 1]; ++e) {
      if (!(weights[e] >= 0) || std::isinf(weights[e]))
        throw std::invalid_argument("a weight is " + std::to_string(weights[e]));
      cumulative[e] = sum += weights[e];
    }
  }
}

}  // namespace graphmill
