#include "negatives.h"

#include <algorithm>
#include <atomic>

#include "pool.h"

namespace graphmill {

namespace {

constexpr int64_t kPerChunk = 512;
constexpr int kTogether = 32;     // pairs whose rows are fetched together: as many as are on the way at once
constexpr int64_t kInLines = 32;  // sources of a row that are fetched whole and searched
constexpr int64_t kPerLine = 16;  // sources in a line of the cache

// Whether each of a few pairs is an edge. Their rows are searched in step, and what the next step reads is on its way
// meanwhile: one after another, each would wait for memory.
void search_together(const KnownEdges& known, const Pair* pairs, int count, bool* found) {
  const int32_t* begin[kTogether];
  int64_t size[kTogether];
  for (int i = 0; i < count; ++i) __builtin_prefetch(known.indptr + pairs[i].target);
  int64_t longest = 0;
  for (int i = 0; i < count; ++i) {
    const int64_t first = known.indptr[pairs[i].target];
    begin[i] = known.sources + first;
    size[i] = known.indptr[pairs[i].target + 1] - first;
    longest = std::max(longest, size[i]);
    if (size[i] > kInLines) __builtin_prefetch(begin[i] + size[i] / 2);
  }
  for (; longest > kInLines; longest -= longest / 2)
    for (int i = 0; i < count; ++i) {
      if (size[i] <= kInLines) continue;
      const int64_t half = size[i] / 2;  // what is sought is in the lower half, or at its end or later
      begin[i] += begin[i][half - 1] < pairs[i].source ? half : 0;
      size[i] -= half;
      __builtin_prefetch(begin[i] + size[i] / 2);
    }
  for (int i = 0; i < count; ++i)
    for (int64_t at = 0; at < size[i] + kPerLine - 1; at += kPerLine)
      __builtin_prefetch(begin[i] + std::min(at, std::max<int64_t>(size[i] - 1, 0)));
  for (int i = 0; i < count; ++i) {
    const auto source = static_cast<int32_t>(pairs[i].source);
    int32_t smaller = 0;
    for (int64_t j = 0; j < size[i]; ++j) smaller += begin[i][j] < source;
    found[i] = is_pair(known, pairs[i], begin[i] - known.sources + smaller);
  }
}

}  // namespace

void find_edges(const KnownEdges& known, const int64_t* sources, const int64_t* targets, const int64_t* at,
                int64_t count, bool* found, int num_threads) {
  ThreadPool::instance().parallel_for(count, kPerChunk, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += kTogether) {
      Pair pairs[kTogether];
      const auto some = static_cast<int>(std::min<int64_t>(kTogether, end - first));
      for (int i = 0; i < some; ++i) pairs[i] = {sources[first + i], targets[first + i], at ? at + first + i : nullptr};
      search_together(known, pairs, some, found + first);
    }
  });
}

int64_t draw_negatives(const KnownEdges* known, const Candidates& sources, const Candidates& targets,
                       const Negatives& wanted, int64_t* source_out, int64_t* target_out, int num_threads) {
  const PairDraws draws{sources, targets, wanted};
  std::atomic<int64_t> num_failed{0};
  ThreadPool::instance().parallel_for(wanted.count, kPerChunk, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += kTogether) {
      Pair pairs[kTogether];
      int64_t places[kTogether];
      bool is_edge[kTogether];
      auto left = static_cast<int>(std::min<int64_t>(kTogether, end - first));
      for (int i = 0; i < left; ++i) places[i] = first + i;
      for (int attempt = 0; attempt < wanted.tries && left; ++attempt) {
        for (int i = 0; i < left; ++i) pairs[i] = draws.draw(places[i], attempt);
        if (known) search_together(*known, pairs, left, is_edge);
        int failed = 0;
        for (int i = 0; i < left; ++i) {
          const bool is_right = draws.exist(pairs[i]) && !(known && is_edge[i]);
          source_out[places[i]] = pairs[i].source;
          target_out[places[i]] = is_right ? pairs[i].target : -1;
          if (!is_right) places[failed++] = places[i];
        }
        left = failed;
      }
      num_failed += left;
    }
  });
  return num_failed;
}

}  // namespace graphmill
