#include "propagation.h"

#include <algorithm>
#include <vector>

#include "pool.h"

namespace graphmill {

namespace {

constexpr int64_t kEdgesWorthHelp = 1 << 20;
constexpr int64_t kProbes = 1 << 12;  // entries that the borders between threads are chosen by

// Borders [num_ranges + 1] of ranges of sources with about equally many entries each: one thread owns each range.
template <class Index>
std::vector<int64_t> borders(const Index* indices, int64_t num_edges, int64_t num_nodes, int num_ranges) {
  std::vector<int64_t> probes;
  for (int64_t at = 0; at < num_edges; at += std::max<int64_t>(1, num_edges / kProbes)) probes.push_back(indices[at]);
  std::sort(probes.begin(), probes.end());
  std::vector<int64_t> ends{0};
  for (int range = 1; range < num_ranges; ++range)
    ends.push_back(std::clamp(probes[probes.size() * range / num_ranges], ends.back(), num_nodes));
  ends.push_back(num_nodes);
  return ends;
}

}  // namespace

template <class Index>
void sum_by_source(const int64_t* indptr, const Index* indices, int64_t num_rows, int64_t num_nodes,
                   const double* values, double* sums, int num_threads) {
  const int64_t num_edges = indptr[num_rows];
  const int num_ranges = num_edges < kEdgesWorthHelp ? 1 : num_threads;
  const std::vector<int64_t> ends = borders(indices, num_edges, num_nodes, num_ranges);
  ThreadPool::instance().parallel_for(num_ranges, 1, num_threads, [&](int64_t first, int64_t last) {
    const int64_t from = ends[first], to = ends[last];
    for (int64_t row = 0; row < num_rows; ++row) {
      const double value = values[row];
      if (value == 0) continue;
      const Index *begin = indices + indptr[row], *end = indices + indptr[row + 1];
      for (const Index* at = std::lower_bound(begin, end, from); at < end && *at < to; ++at)
        if (*at >= from) sums[*at] += value;
    }
  });
}

template void sum_by_source(const int64_t*, const int32_t*, int64_t, int64_t, const double*, double*, int);
template void sum_by_source(const int64_t*, const int64_t*, int64_t, int64_t, const double*, double*, int);

}  // namespace graphmill
