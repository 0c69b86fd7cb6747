#include "ranking.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>
#include <vector>

#include "kernels.h"
#include "pool.h"

namespace graphmill {

namespace {

constexpr int64_t kTilesPerChunk = 64;       // of queries: packing the table once more for each is then a few percent
constexpr int64_t kBlockBytes = 256 * 1024;  // of packed rows: they stay in the second-level cache for a chunk's tiles
constexpr int64_t kGivenPerChunk = 16;       // queries
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

class FirstNaN {  // the lowest query that was noted by any thread
 public:
  void note(int64_t query) {
    int64_t known = first_.load();
    while (query < known && !first_.compare_exchange_weak(known, query)) {
    }
  }
  int64_t get() const { return first_ == kNever ? -1 : first_.load(); }

 private:
  std::atomic<int64_t> first_{kNever};
};

// Which rows of a panel count for a query, panel by panel: not its answer, nor what is left out. The sum over panels
// ascending is what is ranked among.
class Candidates {
 public:
  Candidates() = default;
  Candidates(const LeftOut& left_out, int64_t query, int64_t answer) : answer_(answer) {
    if (left_out.starts) {
      next_ = left_out.ids + left_out.starts[query];
      end_ = left_out.ids + left_out.ends[query];
    }
    look_ahead(0);
  }

  uint32_t among(int64_t first, int64_t count) {  // bit j: whether row first + j is one
    const uint32_t all = count < 32 ? (1u << count) - 1 : ~0u;
    return upcoming_ >= first + count ? all : without_left_out(all, first, first + count);
  }
  int64_t num_removed() const { return num_removed_; }

 private:
  uint32_t without_left_out(uint32_t all, int64_t first, int64_t end) {
    uint32_t removed = 0;
    for (; next_ != end_ && *next_ < end; ++next_)
      if (*next_ >= first) removed |= 1u << (*next_ - first);
    if (answer_ >= first && answer_ < end) removed |= 1u << (answer_ - first);
    num_removed_ += __builtin_popcount(removed);
    look_ahead(end);
    return all & ~removed;
  }
  void look_ahead(int64_t from) {
    upcoming_ = std::min(next_ != end_ ? *next_ : kNever, answer_ >= from ? answer_ : kNever);
  }

  const int32_t* next_ = nullptr;
  const int32_t* end_ = nullptr;
  int64_t answer_ = -1;        // or -1
  int64_t upcoming_ = kNever;  // no row before it is removed
  int64_t num_removed_ = 0;
};

// Queries of a chunk in tiles, and the table in blocks of panels that are packed once for all tiles of the chunk. The
// memory of a thread: both, whatever the table's size.
class Tiles {
 public:
  Tiles(const FloatRows& queries, int64_t begin, int64_t end, const FloatRows& table)
      : kernels_(kernels().ranking), table_(table), num_queries_(end - begin) {
    const int64_t tile = kernels_.tile_queries, width = table.width;
    queries_.resize(num_tiles() * tile * width);
    for (int64_t t = 0; t < num_tiles(); ++t)
      kernels_.pack(queries_.data() + t * tile * width, tile, queries.data + (begin + t * tile) * width, nullptr,
                    queries_in(t), width);
    const int64_t panel_bytes = kernels_.tile_rows * width * 4;
    const int64_t wanted = std::max<int64_t>(1, kBlockBytes / std::max<int64_t>(1, panel_bytes));
    panels_per_block_ = std::min(wanted, std::max<int64_t>(1, ceil_div(table.count, kernels_.tile_rows)));
    block_.resize(panels_per_block_ * kernels_.tile_rows * width);
  }

  int64_t num_tiles() const { return ceil_div(num_queries_, kernels_.tile_queries); }
  int64_t queries_in(int64_t tile) const {
    return std::min<int64_t>(kernels_.tile_queries, num_queries_ - tile * kernels_.tile_queries);
  }

  // each(tile, packed queries, packed rows, first row, number of rows), rows ascending for each tile.
  template <class Each>
  void for_each(const Each& each) {
    const int64_t rows = kernels_.tile_rows, width = table_.width, block_rows = panels_per_block_ * rows;
    for (int64_t begin = 0; begin < table_.count; begin += block_rows) {
      const int64_t end = std::min(begin + block_rows, table_.count);
      for (int64_t first = begin; first < end; first += rows)
        kernels_.pack(block_.data() + (first - begin) * width, rows, table_.data + first * width, nullptr,
                      std::min(rows, end - first), width);
      for (int64_t tile = 0; tile < num_tiles(); ++tile)
        for (int64_t first = begin; first < end; first += rows)
          each(tile, queries_.data() + tile * kernels_.tile_queries * width, block_.data() + (first - begin) * width,
               first, std::min(rows, end - first));
    }
  }

 private:
  const RankingKernels& kernels_;
  const FloatRows& table_;
  int64_t num_queries_, panels_per_block_;
  std::vector<float> queries_, block_;
};

int64_t queries_per_chunk(int64_t num_queries, int num_threads) {
  const int64_t tile = kernels().ranking.tile_queries;
  const int64_t even = ceil_div(num_queries, std::max(1, num_threads));
  return std::clamp(ceil_div(even, tile), int64_t{1}, kTilesPerChunk) * tile;
}

// Of one query with one row: the same bits as anywhere else.
float score_of(const float* query, const FloatRows& table, int64_t row, std::vector<float>& panel) {
  const RankingKernels& ranking = kernels().ranking;
  float scores[32];
  panel.resize(ranking.tile_rows * table.width);
  ranking.pack(panel.data(), ranking.tile_rows, table.data, &row, 1, table.width);
  ranking.score_rows(query, panel.data(), table.width, scores);
  return scores[0];
}

void count_of_chunk(const FloatRows& queries, const int64_t* answers, const FloatRows& table, const LeftOut& left_out,
                    const RankCounts& out, int64_t begin, int64_t end, FirstNaN& nan) {
  const RankingKernels& ranking = kernels().ranking;
  Tiles tiles(queries, begin, end, table);
  std::vector<float> own(tiles.num_tiles() * ranking.tile_queries), panel;
  std::vector<Candidates> candidates;
  for (int64_t query = begin; query < end; ++query) {
    own[query - begin] = score_of(queries.data + query * table.width, table, answers[query], panel);
    if (own[query - begin] != own[query - begin]) nan.note(query);
    candidates.emplace_back(left_out, query, answers[query]);
    out.above[query] = out.tied[query] = 0;
  }
  tiles.for_each([&](int64_t tile, const float* packed, const float* rows, int64_t first, int64_t count) {
    const int64_t at = tile * ranking.tile_queries, num_queries = tiles.queries_in(tile);
    uint32_t live[32];
    for (int64_t q = 0; q < num_queries; ++q) live[q] = candidates[at + q].among(first, count);
    const uint32_t with_nan = ranking.count_tile(packed, rows, table.width, own.data() + at, live, num_queries,
                                                 out.above + begin + at, out.tied + begin + at);
    if (with_nan) nan.note(begin + at + __builtin_ctz(with_nan));
  });
  for (int64_t query = begin; query < end; ++query)
    out.candidates[query] = table.count - candidates[query - begin].num_removed();
}

void count_of_given(const float* query, int64_t answer, const FloatRows& table, const int64_t* candidates,
                    int64_t num_candidates, int64_t at, const RankCounts& out, FirstNaN& nan,
                    std::vector<float>& panel) {
  const RankingKernels& ranking = kernels().ranking;
  const float own = score_of(query, table, answer, panel);
  int64_t above = 0, tied = 0, others = 0;
  bool has_nan = own != own;
  for (int64_t first = 0; first < num_candidates; first += ranking.tile_rows) {
    const int64_t count = std::min<int64_t>(ranking.tile_rows, num_candidates - first);
    float scores[32];
    ranking.pack(panel.data(), ranking.tile_rows, table.data, candidates + first, count, table.width);
    ranking.score_rows(query, panel.data(), table.width, scores);
    for (int64_t j = 0; j < count; ++j) {
      const bool is_other = candidates[first + j] != answer;
      others += is_other;
      above += is_other & (scores[j] > own);
      tied += is_other & (scores[j] == own);
      has_nan |= is_other & (scores[j] != scores[j]);
    }
  }
  out.above[at] = above;
  out.tied[at] = tied;
  out.candidates[at] = others;
  if (has_nan) nan.note(at);
}

// The best so far of one query, the worst of them in front.
class Best {
 public:
  explicit Best(int64_t k) : k_(k) {}

  float bound() const {  // only what is not at or below it can still enter; ids ascend
    return static_cast<int64_t>(kept_.size()) < k_ ? kNaN : kept_.front().first;
  }
  void offer(float score, int64_t id) {
    if (score <= bound()) return;
    if (static_cast<int64_t>(kept_.size()) == k_) {
      std::pop_heap(kept_.begin(), kept_.end(), is_better);
      kept_.pop_back();
    }
    kept_.emplace_back(score, id);
    std::push_heap(kept_.begin(), kept_.end(), is_better);
  }
  void write(int64_t* ids, float* scores) {
    std::sort_heap(kept_.begin(), kept_.end(), is_better);
    const int64_t found = static_cast<int64_t>(kept_.size());
    for (int64_t i = 0; i < k_; ++i) {
      ids[i] = i < found ? kept_[i].second : -1;
      scores[i] = i < found ? kept_[i].first : -kInfinity;
    }
  }

 private:
  using Entry = std::pair<float, int64_t>;
  static bool is_better(const Entry& a, const Entry& b) {
    return a.first > b.first || (a.first == b.first && a.second < b.second);
  }

  int64_t k_;
  std::vector<Entry> kept_;
};

void best_of_chunk(const FloatRows& queries, const FloatRows& table, const LeftOut& left_out, int64_t k, int64_t* ids,
                   float* scores, int64_t begin, int64_t end, FirstNaN& nan) {
  const RankingKernels& ranking = kernels().ranking;
  Tiles tiles(queries, begin, end, table);
  std::vector<float> bounds(tiles.num_tiles() * ranking.tile_queries, kNaN), found(32 * 32);
  std::vector<Candidates> candidates;
  std::vector<Best> best(end - begin, Best(k));
  for (int64_t query = begin; query < end; ++query) candidates.emplace_back(left_out, query, -1);
  tiles.for_each([&](int64_t tile, const float* packed, const float* rows, int64_t first, int64_t count) {
    const int64_t at = tile * ranking.tile_queries;
    uint32_t chosen[32];
    ranking.score_tile(packed, rows, table.width, bounds.data() + at, found.data(), chosen);
    for (int64_t q = 0; q < tiles.queries_in(tile); ++q) {
      uint32_t bits = chosen[q] & candidates[at + q].among(first, count);
      if (!bits) continue;
      for (; bits; bits &= bits - 1) {
        const int64_t row = __builtin_ctz(bits);
        const float score = found[q * ranking.tile_rows + row];
        if (score != score) nan.note(begin + at + q);
        else best[at + q].offer(score, first + row);
      }
      bounds[at + q] = best[at + q].bound();
    }
  });
  for (int64_t query = begin; query < end; ++query) best[query - begin].write(ids + query * k, scores + query * k);
}

}  // namespace

int64_t count_above(const FloatRows& queries, const int64_t* answers, const FloatRows& table, const LeftOut& left_out,
                    const RankCounts& out, int num_threads) {
  FirstNaN nan;
  const int64_t chunk = queries_per_chunk(queries.count, num_threads);
  ThreadPool::instance().parallel_for(queries.count, chunk, num_threads, [&](int64_t begin, int64_t end) {
    count_of_chunk(queries, answers, table, left_out, out, begin, end, nan);
  });
  return nan.get();
}

int64_t count_above_given(const FloatRows& queries, const int64_t* answers, const FloatRows& table,
                          const int64_t* candidates, int64_t num_candidates, const RankCounts& out, int num_threads) {
  FirstNaN nan;
  ThreadPool::instance().parallel_for(queries.count, kGivenPerChunk, num_threads, [&](int64_t begin, int64_t end) {
    std::vector<float> panel;
    for (int64_t query = begin; query < end; ++query)
      count_of_given(queries.data + query * table.width, answers[query], table, candidates + query * num_candidates,
                     num_candidates, query, out, nan, panel);
  });
  return nan.get();
}

int64_t best_rows(const FloatRows& queries, const FloatRows& table, const LeftOut& left_out, int64_t k, int64_t* ids,
                  float* scores, int num_threads) {
  FirstNaN nan;
  const int64_t chunk = queries_per_chunk(queries.count, num_threads);
  ThreadPool::instance().parallel_for(queries.count, chunk, num_threads, [&](int64_t begin, int64_t end) {
    best_of_chunk(queries, table, left_out, k, ids, scores, begin, end, nan);
  });
  return nan.get();
}

}  // namespace graphmill
