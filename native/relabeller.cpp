#include "relabeller.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "shared/branchless.h"

namespace graphmill {

namespace {

constexpr int64_t kEdgesAhead = 24;  // edges whose node's position is fetched ahead of its use

}  // namespace

std::unique_ptr<Relabeller::Workspace> Relabeller::take_workspace() const {
  {
    std::lock_guard lock(pool_->mutex);
    if (!pool_->workspaces.empty()) {
      auto work = std::move(pool_->workspaces.back());
      pool_->workspaces.pop_back();
      return work;
    }
  }
  auto work = std::make_unique<Workspace>();
  if (!hashed_) work->position.assign(num_nodes_, 0);
  return work;
}

std::shared_ptr<Neighbourhood> Relabeller::take_result() const {
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

Batch::Batch(const Relabeller& relabeller, const int64_t* seeds, int64_t num_seeds, bool resample, bool with_edge_ids)
    : relabeller_(relabeller), work_(relabeller.take_workspace()), out_(relabeller.take_result()), resample_(resample) {
  out_->clear();
  out_->has_edge_ids = with_edge_ids;
  try {
    place_seeds(seeds, num_seeds);
  } catch (...) {
    give_back();  // an object whose constructor throws is never destroyed
    throw;
  }
  out_->indptr.reserve(1);
  out_->indptr[0] = 0;
  out_->nodes_per_hop.push_back(num_seeds);
}

Batch::~Batch() { give_back(); }

void Batch::give_back() {
  const int64_t num_nodes = relabeller_.num_nodes_;
  if (relabeller_.hashed_) work_->table.clear();
  work_->base += static_cast<uint32_t>(out_->num_nodes);
  if (!relabeller_.hashed_ && UINT32_MAX - work_->base <= static_cast<uint64_t>(num_nodes)) {
    work_->position.assign(num_nodes, 0);
    work_->base = 1;
  }
  std::lock_guard lock(relabeller_.pool_->mutex);
  relabeller_.pool_->workspaces.push_back(std::move(work_));
}

void Batch::place_seeds(const int64_t* seeds, int64_t num_seeds) {
  out_->node_ids.reserve(num_seeds);
  for (int64_t i = 0; i < num_seeds; ++i) {
    const int64_t seed = seeds[i];
    if (seed < 0 || seed >= relabeller_.num_nodes_)
      throw std::invalid_argument("seed " + std::to_string(seed) + " is not a node of a graph with " +
                                  std::to_string(relabeller_.num_nodes_) + " nodes");
    if (is_placed(seed)) throw std::invalid_argument("seed " + std::to_string(seed) + " stands twice in one batch");
    if (relabeller_.hashed_) work_->table.find_or_append(seed);
    else work_->position[seed] = work_->base + static_cast<uint32_t>(i);
    out_->node_ids[i] = seed;
    out_->num_nodes = i + 1;
  }
}

bool Batch::is_placed(int64_t seed) const {
  return relabeller_.hashed_ ? work_->table.find(seed) >= 0 : work_->position[seed] >= work_->base;
}

int64_t* Batch::begin_hop() {
  nodes_before_ = out_->num_nodes;
  edges_before_ = out_->num_edges;
  const int64_t num_rows = frontier_size(), first_row = out_->num_rows;
  out_->indptr.reserve(first_row + num_rows + 1, first_row + 1);
  out_->num_rows = first_row + num_rows;
  out_->rows_per_hop.push_back(num_rows);
  return out_->indptr.data() + first_row;
}

void Batch::reserve_edges() {
  out_->num_edges = out_->indptr[out_->num_rows];
  const int64_t num_added = out_->num_edges - edges_before_;
  out_->indices.reserve(out_->num_edges, edges_before_);
  if (out_->has_edge_ids) out_->edge_ids.reserve(out_->num_edges, edges_before_);
  out_->node_ids.reserve(std::min(out_->num_nodes + num_added, relabeller_.num_nodes_) + 1, out_->num_nodes);
}

template <class Id>
void Batch::relabel_hashed(const Id* sources, int32_t* indices, int64_t count) {
  NodeTable& table = work_->table;
  int64_t* node_ids = out_->node_ids.data();
  int64_t num_nodes = out_->num_nodes;
  for (int64_t edge = 0; edge < count; ++edge) {
    if (edge + kEdgesAhead < count) table.prefetch(sources[edge + kEdgesAhead]);
    const Id node = sources[edge];
    const int64_t local = table.find_or_append(node);
    node_ids[num_nodes] = node;  // overwritten by the next edge unless the node is new
    num_nodes += local == num_nodes;
    indices[edge] = static_cast<int32_t>(local);
  }
  out_->num_nodes = num_nodes;
}

template <class Id>
void Batch::relabel(const Id* sources, int64_t first, int64_t count) {
  if (relabeller_.hashed_) return relabel_hashed(sources, out_->indices.data() + first, count);
  uint32_t* position = work_->position.data();
  const uint32_t base = work_->base;
  int32_t* indices = out_->indices.data() + first;
  int64_t* node_ids = out_->node_ids.data();
  int64_t num_nodes = out_->num_nodes;
  for (int64_t edge = 0; edge < count; ++edge) {
    if (edge + kEdgesAhead < count) __builtin_prefetch(position + sources[edge + kEdgesAhead], 1);
    const Id node = sources[edge];
    const uint32_t known = position[node];
    const bool is_new = static_cast<uint64_t>(int64_t{known} - int64_t{base}) >> 63;
    const auto local = static_cast<uint32_t>(choose(is_new, base + static_cast<uint64_t>(num_nodes), known));
    position[node] = local;
    node_ids[num_nodes] = node;  // overwritten by the next edge unless the node is new
    num_nodes += is_new;
    indices[edge] = static_cast<int32_t>(local - base);
  }
  out_->num_nodes = num_nodes;
}

template void Batch::relabel<int32_t>(const int32_t*, int64_t, int64_t);
template void Batch::relabel<int64_t>(const int64_t*, int64_t, int64_t);

void Batch::end_hop() {
  node_begin_ = nodes_before_;
  out_->nodes_per_hop.push_back(out_->num_nodes - nodes_before_);
  out_->edges_per_hop.push_back(out_->num_edges - edges_before_);
}

}  // namespace graphmill
