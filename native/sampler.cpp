#include "sampler.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>

#include "kernels.h"
#include "pool.h"
#include "random.h"

namespace graphmill {

namespace {

constexpr int64_t kRowsPerChunk = 128;
constexpr int64_t kRowsWorthHelp = 4096;  // a hop with fewer rows is over before a sleeping helper wakes
constexpr int64_t kMostScanned = 64;      // picks that are compared with each other; above, a bitmap is cheaper
constexpr int64_t kShortRowBytes = 256;   // a row of in-edges that is fetched whole rather than pick by pick
constexpr int64_t kRowsAhead = 16;        // rows whose offsets are fetched ahead of their use
constexpr int64_t kEdgesAhead = 24;       // edges whose node's position is fetched ahead of its use

// condition ? yes : no without a branch, which compilers make of the operator, and which half of the time is
// mispredicted here.
inline uint64_t choose(bool condition, uint64_t yes, uint64_t no) {
  const uint64_t mask = -static_cast<uint64_t>(condition);
  return (yes & mask) | (no & ~mask);
}

// Floyd's choice for one draw: the draw itself, or, where it is taken already, the upper limit.
void pick_by_mask(int64_t start, int64_t degree, int64_t count, uint64_t key, int64_t* picked) {
  uint32_t drawn[64];
  kernels().draw_below_each(key, degree - count + 1, count, drawn);
  uint64_t taken = 0;
  for (int64_t i = 0, limit = degree - count; i < count; ++i, ++limit) {
    const uint64_t pick = choose(taken >> drawn[i] & 1, limit, drawn[i]);
    taken |= uint64_t{1} << pick;
    picked[i] = start + static_cast<int64_t>(pick);
  }
}

void pick_by_scan(int64_t start, int64_t degree, int64_t count, uint64_t key, int64_t* picked) {
  uint32_t drawn[kMostScanned];
  kernels().draw_below_each(key, degree - count + 1, count, drawn);
  for (int64_t i = 0, limit = degree - count; i < count; ++i, ++limit) {
    bool taken = false;
    for (int64_t j = 0; j < i; ++j) taken |= drawn[j] == drawn[i];
    drawn[i] = static_cast<uint32_t>(choose(taken, limit, drawn[i]));
    picked[i] = start + drawn[i];
  }
}

void pick_by_bitmap(int64_t start, int64_t degree, int64_t count, uint64_t key, int64_t* picked) {
  std::vector<uint64_t> taken((degree + 63) / 64);
  for (int64_t i = 0, limit = degree - count; i < count; ++i, ++limit) {
    uint64_t pick = draw_below(key, i, limit + 1);
    if (taken[pick / 64] >> (pick % 64) & 1) pick = limit;
    taken[pick / 64] |= uint64_t{1} << (pick % 64);
    picked[i] = start + static_cast<int64_t>(pick);
  }
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

template <class Index>
Sampler<Index>::Sampler(const int64_t* indptr, const Index* indices, int64_t num_nodes, int64_t num_edges)
    : indptr_(indptr), indices_(indices), num_nodes_(num_nodes), num_edges_(num_edges) {
  if (num_nodes >= INT32_MAX)
    throw std::invalid_argument("the sampler holds local ids in 31 bits: at most 2^31 - 2 nodes");
}

template <class Index>
std::unique_ptr<typename Sampler<Index>::Workspace> Sampler<Index>::take_workspace() {
  {
    std::lock_guard lock(pool_->mutex);
    if (!pool_->workspaces.empty()) {
      auto work = std::move(pool_->workspaces.back());
      pool_->workspaces.pop_back();
      return work;
    }
  }
  auto work = std::make_unique<Workspace>();
  work->position.assign(num_nodes_, 0);
  return work;
}

template <class Index>
std::shared_ptr<Neighbourhood> Sampler<Index>::take_result() {
  std::unique_ptr<Neighbourhood> result;
  {
    std::lock_guard lock(pool_->mutex);
    if (!pool_->results.empty()) {
      result = std::move(pool_->results.back());
      pool_->results.pop_back();
    }
  }
  if (!result) result = std::make_unique<Neighbourhood>();
  return {result.release(), [pool = pool_](Neighbourhood* done) {
            std::lock_guard lock(pool->mutex);
            pool->results.emplace_back(done);
          }};
}

template <class Index>
void Sampler<Index>::place_seeds(Workspace& work, Neighbourhood& out, const int64_t* seeds, int64_t num_seeds) const {
  out.node_ids.reserve(num_seeds);
  for (int64_t i = 0; i < num_seeds; ++i) {
    const int64_t seed = seeds[i];
    if (seed < 0 || seed >= num_nodes_)
      throw std::invalid_argument("seed " + std::to_string(seed) + " is not a node of a graph with " +
                                  std::to_string(num_nodes_) + " nodes");
    if (work.position[seed] >= work.base)
      throw std::invalid_argument("seed " + std::to_string(seed) + " stands twice in one batch");
    work.position[seed] = work.base + static_cast<uint32_t>(i);
    out.node_ids[i] = seed;
    out.num_nodes = i + 1;
  }
}

template <class Index>
void Sampler<Index>::count_edges(Workspace& work, Neighbourhood& out, const Hop& hop) const {
  const int64_t num_rows = hop.node_end - hop.node_begin;
  const int64_t* nodes = out.node_ids.data() + hop.node_begin;
  work.starts.reserve(num_rows);
  work.degrees.reserve(num_rows);
  out.indptr.reserve(hop.first_row + num_rows + 1, hop.first_row + 1);
  int64_t* ends = out.indptr.data() + hop.first_row;
  for (int64_t i = 0; i < num_rows; ++i) {
    if (i + kRowsAhead < num_rows) __builtin_prefetch(indptr_ + nodes[i + kRowsAhead]);
    const int64_t start = indptr_[nodes[i]], degree = indptr_[nodes[i] + 1] - start;
    work.starts[i] = start;
    work.degrees[i] = degree;
    ends[i + 1] = ends[i] + (hop.fanout < 0 ? degree : std::min(degree, hop.fanout));
  }
}

template <class Index>
void Sampler<Index>::pick_rows(const Workspace& work, Neighbourhood& out, const Hop& hop, int64_t begin,
                               int64_t end) const {
  const int64_t* offsets = out.indptr.data() + hop.first_row;
  const int64_t* nodes = out.node_ids.data() + hop.node_begin;
  const int64_t first_edge = offsets[begin], num_picked = offsets[end] - first_edge;
  thread_local std::vector<int64_t> picked;
  if (static_cast<int64_t>(picked.size()) < num_picked) picked.resize(num_picked);
  for (int64_t row = begin; row < end; ++row) {
    int64_t* mine = picked.data() + (offsets[row] - first_edge);
    const int64_t count = offsets[row + 1] - offsets[row];
    const int64_t start = work.starts.data()[row], degree = work.degrees.data()[row];
    pick_edges(start, degree, count, subkey(hop.key, nodes[row]), mine);
    if (degree * static_cast<int64_t>(sizeof(Index)) <= kShortRowBytes) {
      for (int64_t i = 0; i < degree; i += 64 / sizeof(Index)) __builtin_prefetch(indices_ + start + i);
      __builtin_prefetch(indices_ + start + degree - 1);
    } else {
      for (int64_t i = 0; i < count; ++i) __builtin_prefetch(indices_ + mine[i]);
    }
  }
  int32_t* targets = out.indices.data() + first_edge;
  for (int64_t i = 0; i < num_picked; ++i) targets[i] = static_cast<int32_t>(indices_[picked[i]]);
  if (hop.with_edge_ids) std::copy_n(picked.data(), num_picked, out.edge_ids.data() + first_edge);
}

// In the order of the edges, so that local ids do not depend on which thread picked what.
template <class Index>
void Sampler<Index>::relabel_rows(Workspace& work, Neighbourhood& out, const Hop& hop, int64_t begin,
                                  int64_t end) const {
  const int64_t* offsets = out.indptr.data() + hop.first_row;
  uint32_t* position = work.position.data();
  const uint32_t base = work.base;
  int32_t* edge = out.indices.data() + offsets[begin];
  int32_t* const last = out.indices.data() + offsets[end];
  int64_t* node_ids = out.node_ids.data();
  int64_t num_nodes = out.num_nodes;
  for (; edge < last; ++edge) {
    if (edge + kEdgesAhead < last) __builtin_prefetch(position + edge[kEdgesAhead], 1);
    const int32_t node = *edge;
    const uint32_t known = position[node];
    const bool is_new = static_cast<uint64_t>(int64_t{known} - int64_t{base}) >> 63;
    const auto local = static_cast<uint32_t>(choose(is_new, base + static_cast<uint64_t>(num_nodes), known));
    position[node] = local;
    node_ids[num_nodes] = node;  // overwritten by the next edge unless the node is new
    num_nodes += is_new;
    *edge = static_cast<int32_t>(local - base);
  }
  out.num_nodes = num_nodes;
}

template <class Index>
void Sampler<Index>::sample_hop(Workspace& work, Neighbourhood& out, const Hop& hop, int num_threads) const {
  count_edges(work, out, hop);
  const int64_t num_rows = hop.node_end - hop.node_begin;
  const int64_t num_before = out.num_edges;
  out.num_rows = hop.first_row + num_rows;
  out.num_edges = out.indptr[out.num_rows];
  const int64_t num_added = out.num_edges - num_before;
  out.indices.reserve(out.num_edges, num_before);
  if (hop.with_edge_ids) out.edge_ids.reserve(out.num_edges, num_before);
  out.node_ids.reserve(std::min(out.num_nodes + num_added, num_nodes_) + 1, out.num_nodes);

  // Helpers pick; the caller picks too, and it alone relabels, so that positions stay in its cache.
  const int64_t num_chunks = (num_rows + kRowsPerChunk - 1) / kRowsPerChunk;
  std::vector<std::atomic<bool>> picked(num_chunks);
  int64_t next = 0;  // first chunk that is not relabelled yet
  const auto relabel_what_is_ready = [&] {
    for (; next < num_chunks && picked[next].load(std::memory_order_acquire); ++next)
      relabel_rows(work, out, hop, next * kRowsPerChunk, std::min((next + 1) * kRowsPerChunk, num_rows));
  };
  const auto caller = std::this_thread::get_id();
  const auto pick_chunks = [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin / kRowsPerChunk; chunk * kRowsPerChunk < end; ++chunk) {
      pick_rows(work, out, hop, chunk * kRowsPerChunk, std::min((chunk + 1) * kRowsPerChunk, num_rows));
      picked[chunk].store(true, std::memory_order_release);
      if (std::this_thread::get_id() == caller) relabel_what_is_ready();
    }
  };
  ThreadPool::instance().parallel_for(num_rows, kRowsPerChunk, num_rows < kRowsWorthHelp ? 1 : num_threads,
                                      pick_chunks);
  relabel_what_is_ready();
}

template <class Index>
std::shared_ptr<Neighbourhood> Sampler<Index>::sample(const int64_t* seeds, int64_t num_seeds,
                                                      const std::vector<int64_t>& fanouts, uint64_t key, bool resample,
                                                      bool with_edge_ids, int num_threads) {
  auto work = take_workspace();
  auto out = take_result();
  out->clear();
  // Whatever happens, what this batch wrote to the workspace is out of date afterwards.
  struct Return {
    Sampler& sampler;
    std::unique_ptr<Workspace>& work;
    Neighbourhood& out;
    ~Return() {
      work->base += static_cast<uint32_t>(out.num_nodes);
      if (UINT32_MAX - work->base <= static_cast<uint64_t>(sampler.num_nodes_)) {
        work->position.assign(sampler.num_nodes_, 0);
        work->base = 1;
      }
      std::lock_guard lock(sampler.pool_->mutex);
      sampler.pool_->workspaces.push_back(std::move(work));
    }
  } give_back{*this, work, *out};

  place_seeds(*work, *out, seeds, num_seeds);
  out->indptr.reserve(1);
  out->indptr[0] = 0;
  out->nodes_per_hop.push_back(num_seeds);
  int64_t node_begin = 0;
  for (size_t i = 0; i < fanouts.size(); ++i) {
    const int64_t nodes_before = out->num_nodes, edges_before = out->num_edges;
    const Hop hop{resample ? 0 : node_begin, nodes_before, out->num_rows, fanouts[i], subkey(key, i), with_edge_ids};
    sample_hop(*work, *out, hop, num_threads);
    node_begin = nodes_before;
    out->rows_per_hop.push_back(hop.node_end - hop.node_begin);
    out->nodes_per_hop.push_back(out->num_nodes - nodes_before);
    out->edges_per_hop.push_back(out->num_edges - edges_before);
  }
  return out;
}

template class Sampler<int32_t>;
template class Sampler<int64_t>;

}  // namespace graphmill
