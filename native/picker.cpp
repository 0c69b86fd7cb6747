#include "picker.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels.h"
#include "pool.h"
#include "shared/floyd.h"

namespace graphmill {

namespace {

constexpr int64_t kMostScanned = 64;       // picks that are compared with each other; above, a bitmap is cheaper
constexpr int64_t kShortRowBytes = 256;    // a row of in-edges that is fetched whole rather than pick by pick
constexpr int64_t kRowsAhead = 16;         // rows whose offsets are fetched ahead of their use
constexpr int64_t kIdsPerChunk = 1 << 16;  // that one thread checks at a time

struct TheseDraws {  // made before
  const uint32_t* drawn;
  uint64_t operator()(int64_t index, int64_t) const { return drawn[index]; }
};

struct TakenBitmap {
  std::vector<uint64_t> words;
  bool holds(uint64_t position) const { return words[position / 64] >> (position % 64) & 1; }
  void add(uint64_t position) { words[position / 64] |= uint64_t{1} << (position % 64); }
};

void pick_by_mask(int64_t start, int64_t degree, int64_t count, uint64_t key, int64_t* picked) {
  uint32_t drawn[64];
  kernels().draws.below_each(key, degree - count + 1, count, drawn);
  TakenMask taken;
  floyd(start, degree, count, TheseDraws{drawn}, taken, picked);
}

void pick_by_scan(int64_t start, int64_t degree, int64_t count, uint64_t key, int64_t* picked) {
  uint32_t drawn[kMostScanned];
  kernels().draws.below_each(key, degree - count + 1, count, drawn);
  TakenList taken{drawn};  // in place of the draws that are used
  floyd(start, degree, count, TheseDraws{drawn}, taken, picked);
}

void pick_by_bitmap(int64_t start, int64_t degree, int64_t count, uint64_t key, int64_t* picked) {
  TakenBitmap taken{std::vector<uint64_t>((degree + 63) / 64)};
  floyd(start, degree, count, KeyedDraws{key}, taken, picked);
}

}  // namespace

void pick_edges(int64_t start, int64_t degree, int64_t count, uint64_t key, int64_t* picked) {
  if (count == degree) {
    for (int64_t i = 0; i < count; ++i) picked[i] = start + i;
  } else if (degree <= 64) {
    pick_by_mask(start, degree, count, key, picked);
  } else if (count <= kMostScanned && degree < UINT32_MAX) {
    pick_by_scan(start, degree, count, key, picked);
  } else {
    pick_by_bitmap(start, degree, count, key, picked);
  }
}

namespace {

// Position of the first id that is not a node, or -1.
template <class Index>
int64_t first_stranger(const Index* indices, int64_t num_edges, int64_t num_nodes, int num_threads) {
  using Unsigned = std::make_unsigned_t<Index>;  // of which negative ids are the largest
  std::atomic<int64_t> first{num_edges};
  ThreadPool::instance().parallel_for(num_edges, kIdsPerChunk, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; chunk += kIdsPerChunk) {
      const int64_t stop = std::min(chunk + kIdsPerChunk, end);
      bool any = false;
      for (int64_t i = chunk; i < stop; ++i)
        any |= static_cast<Unsigned>(indices[i]) >= static_cast<Unsigned>(num_nodes);
      if (!any) continue;
      int64_t at = chunk;
      while (static_cast<Unsigned>(indices[at]) < static_cast<Unsigned>(num_nodes)) ++at;
      int64_t known = first.load();
      while (at < known && !first.compare_exchange_weak(known, at)) {
      }
      return;
    }
  });
  return first < num_edges ? first.load() : -1;
}

}  // namespace

template <class Index>
Picker<Index>::Picker(const int64_t* indptr, const Index* indices, int64_t num_rows, int64_t num_edges,
                      int64_t num_nodes, int num_threads)
    : indptr_(indptr), indices_(indices), num_rows_(num_rows) {
  if (num_nodes >= INT32_MAX)
    throw std::invalid_argument("the sampler holds local ids in 31 bits: at most 2^31 - 2 nodes");
  for (int64_t row = 0; row < num_rows; ++row)
    if (indptr[row] > indptr[row + 1])
      throw std::invalid_argument("indptr falls at node " + std::to_string(row) + ", from " +
                                  std::to_string(indptr[row]) + " to " + std::to_string(indptr[row + 1]));
  const int64_t stranger = first_stranger(indices, num_edges, num_nodes, num_threads);
  if (stranger >= 0)
    throw std::invalid_argument("edge " + std::to_string(stranger) + " comes from node " +
                                std::to_string(indices[stranger]) + " of a graph with " + std::to_string(num_nodes) +
                                " nodes");
}

template <class Index>
void Picker<Index>::locate(const Rows& rows, Spans& spans, int64_t* ends) const {
  spans.starts.reserve(rows.count);
  spans.degrees.reserve(rows.count);
  const int64_t count = rows.count, *places = rows.places;
  int64_t *starts = spans.starts.data(), *degrees = spans.degrees.data();
  for (int64_t i = 0; i < count; ++i) {
    if (i + kRowsAhead < count) __builtin_prefetch(indptr_ + places[i + kRowsAhead]);
    const int64_t start = indptr_[places[i]], degree = indptr_[places[i] + 1] - start;
    starts[i] = start;
    degrees[i] = degree;
    ends[i + 1] = ends[i] + rows.num_picked(degree);
  }
}

template <class Index>
template <class Id>
void Picker<Index>::pick(const Rows& rows, const Spans& spans, const int64_t* ends, int64_t begin, int64_t end,
                         Id* sources, int64_t* edge_ids) const {
  const int64_t first_edge = ends[begin], num_picked = ends[end] - first_edge;
  thread_local std::vector<int64_t> picked;
  if (static_cast<int64_t>(picked.size()) < num_picked) picked.resize(num_picked);
  const int64_t *nodes = rows.nodes, *starts = spans.starts.data(), *degrees = spans.degrees.data();
  const uint64_t key = rows.key;
  for (int64_t row = begin; row < end; ++row) {
    int64_t* mine = picked.data() + (ends[row] - first_edge);
    const int64_t count = ends[row + 1] - ends[row];
    const int64_t start = starts[row], degree = degrees[row];
    pick_edges(start, degree, count, subkey(key, nodes[row]), mine);
    if (degree * static_cast<int64_t>(sizeof(Index)) <= kShortRowBytes) {
      for (int64_t i = 0; i < degree; i += 64 / sizeof(Index)) __builtin_prefetch(indices_ + start + i);
      __builtin_prefetch(indices_ + start + degree - 1);
    } else {
      for (int64_t i = 0; i < count; ++i) __builtin_prefetch(indices_ + mine[i]);
    }
  }
  Id* to = sources + first_edge;
  for (int64_t i = 0; i < num_picked; ++i) to[i] = static_cast<Id>(indices_[picked[i]]);
  if (edge_ids) std::copy_n(picked.data(), num_picked, edge_ids + first_edge);
}

#define GRAPHMILL_PICK(Index, Id)                                                                                   \
  template void Picker<Index>::pick<Id>(const Rows&, const Spans&, const int64_t*, int64_t, int64_t, Id*, int64_t*) \
      const
template class Picker<int32_t>;
template class Picker<int64_t>;
GRAPHMILL_PICK(int32_t, int32_t);
GRAPHMILL_PICK(int32_t, int64_t);
GRAPHMILL_PICK(int64_t, int32_t);
GRAPHMILL_PICK(int64_t, int64_t);

}  // namespace graphmill
