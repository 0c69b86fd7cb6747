#include "negatives.h"

#include <algorithm>
#include <atomic>

#include "draws.h"
#include "pool.h"
#include "random.h"

namespace graphmill {

namespace {

constexpr int64_t kPerChunk = 512;

int64_t draw_node(const Candidates& from, uint64_t key, uint64_t index) {
  if (from.weights) return place_by_weight(from.weights, from.count, 0, key, index);
  return static_cast<int64_t>(draw_below(key, index, static_cast<uint64_t>(from.count)));
}

bool exists(const Candidates& from, int64_t node, const int64_t* time) {
  return !from.times || !time || from.times[node] <= *time;
}

}  // namespace

bool KnownEdges::has(int64_t source, int64_t target, const int64_t* time) const {
  const int32_t* end = sources + indptr[target + 1];
  const int32_t* found = std::lower_bound(sources + indptr[target], end, source);
  if (found == end || *found != source) return false;
  return !times || !time || times[found - sources] <= *time;
}

int64_t draw_negatives(const KnownEdges* known, const Candidates& sources, const Candidates& targets,
                       const Negatives& wanted, int64_t* source_out, int64_t* target_out, int num_threads) {
  std::atomic<int64_t> num_failed{0};
  ThreadPool::instance().parallel_for(wanted.count, kPerChunk, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t key = subkey(wanted.key, static_cast<uint64_t>(i));
      const int64_t* time = wanted.times ? wanted.times + i : nullptr;
      int64_t source = wanted.given ? wanted.given[i] : -1, target = -1;
      for (int attempt = 0; attempt < wanted.tries && target < 0; ++attempt) {
        if (!wanted.given) source = draw_node(sources, key, 2 * attempt + 1);
        const int64_t drawn = draw_node(targets, key, 2 * attempt);
        if (exists(sources, source, time) && exists(targets, drawn, time) &&
            !(known && known->has(source, drawn, time)))
          target = drawn;
      }
      source_out[i] = source;
      target_out[i] = target;
      if (target < 0) ++num_failed;
    }
  });
  return num_failed;
}

}  // namespace graphmill
