#include "growth.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "pool.h"
#include "shared/branchless.h"
#include "shared/random.h"

namespace graphmill {

namespace {

constexpr int64_t kRowsPerChunk = 128;
constexpr int64_t kRowsWorthHelp = 4096;  // a hop with fewer rows is over before a sleeping helper wakes
constexpr int64_t kAhead = 24;            // edges and rows whose place in memory is fetched ahead of its use

}  // namespace

void Places::relabel(int32_t* nodes, int64_t count, int64_t* ids, int64_t& num_ids, bool apart) {
  int64_t num = num_ids;
  if (apart) {
    for (int64_t i = 0; i < count; ++i) {
      const int32_t node = nodes[i];
      const int64_t place = table_.find_or_append(node);
      ids[num] = node;  // overwritten by the next one unless it is new
      num += place == num;
      nodes[i] = static_cast<int32_t>(place);
    }
  } else {
    uint32_t* position = position_.data();
    for (int64_t i = 0; i < count; ++i) {
      if (i + kAhead < count) __builtin_prefetch(position + nodes[i + kAhead], 1);
      const int32_t node = nodes[i];
      const uint32_t known = position[node];
      const bool is_new = known < base_;
      const auto place = static_cast<uint32_t>(choose(is_new, base_ + static_cast<uint64_t>(num), known));
      position[node] = place;
      ids[num] = node;
      num += is_new;
      nodes[i] = static_cast<int32_t>(place - base_);
    }
  }
  num_ids = num;
}

void Places::forget(int64_t num_placed, bool apart) {
  if (apart) return table_.clear();
  base_ += static_cast<uint32_t>(num_placed);
  if (UINT32_MAX - base_ > static_cast<uint32_t>(INT32_MAX)) return;  // room for any subgraph
  std::fill(position_.begin(), position_.end(), 0);
  base_ = 1;
}

void Growth::clear(bool apart) {
  apart_ = apart;
  for (size_t type = 0; type < types.size(); ++type) {
    types[type].count = 0;
    types[type].places.prepare(num_nodes_[type], apart);
  }
  for (OfRelation& relation : relations) relation.count = 0;
  nodes_per_hop.clear();
  edges_per_hop.clear();
}

void Growth::begin_subgraph(const uint64_t* number, const int64_t* time) {
  number_ = number;
  time_ = time;
  for (OfType& type : types) type.begin = type.hop_begin = type.hop_end = type.count;
  edges_before_.assign(relations.size(), 0);
  for (size_t i = 0; i < relations.size(); ++i) edges_before_[i] = relations[i].count;
}

void Growth::place_seed(int type, int64_t node) {
  OfType& to = types[type];
  if (to.places.find(node, apart_) < 0) to.places.put(node, to.count - to.begin, apart_);
  to.ids.reserve(to.count + 1, to.count);
  to.ids[to.count++] = node;
}

void Growth::end_hop() {
  for (OfType& type : types) {
    nodes_per_hop.push_back(type.count - type.hop_end);
    type.hop_begin = type.hop_end;
    type.hop_end = type.count;
  }
}

void Growth::note_edges() {
  for (size_t i = 0; i < relations.size(); ++i) {
    edges_per_hop.push_back(relations[i].count - edges_before_[i]);
    edges_before_[i] = relations[i].count;
  }
}

void Growth::end_subgraph() {
  for (OfType& type : types) type.places.forget(type.count - type.begin, apart_);
}

// In-edges of rows [begin, end) of the hop: where they lie, and their sources, as nodes still.
void Growth::pick(size_t relation, const DrawRule& rule, uint64_t key, int64_t begin, int64_t end) {
  const Relation& columns = columns_[relation];
  const OfType& target = types[columns.target];
  const int64_t first_row = target.hop_begin;
  OfRelation& to = relations[relation];
  int64_t* edges = to.edges.data() + to.count;
  for (int64_t row = begin; row < end; ++row) {
    const Choice& choice = choices_[row];
    if (choice.count == 0) continue;
    uint64_t node_key = subkey(key, static_cast<uint64_t>(target.ids.data()[first_row + row]));
    if (number_) node_key = subkey(node_key, *number_);
    draw(columns, choice, rule, node_key, edges + ends_[row]);
    if (columns.narrow)
      for (int64_t i = ends_[row]; i < ends_[row + 1]; ++i) __builtin_prefetch(columns.narrow + edges[i]);
  }
  const int64_t first = ends_[begin], last = ends_[end];
  int32_t* sources = to.sources.data() + to.count;
  if (columns.narrow)
    for (int64_t i = first; i < last; ++i) sources[i] = columns.narrow[edges[i]];
  else
    for (int64_t i = first; i < last; ++i) sources[i] = static_cast<int32_t>(columns.wide[edges[i]]);
  int32_t* targets = to.targets.data() + to.count;
  const auto local = static_cast<int32_t>(first_row - target.begin);
  for (int64_t row = begin; row < end; ++row)
    std::fill(targets + ends_[row], targets + ends_[row + 1], local + static_cast<int32_t>(row));
}

void Growth::relabel(size_t relation, int64_t first, int64_t count) {
  OfType& source = types[columns_[relation].source];
  OfRelation& of = relations[relation];
  int64_t num_nodes = source.count - source.begin;
  source.places.relabel(of.sources.data() + of.count + first, count, source.ids.data() + source.begin, num_nodes,
                        apart_);
  source.count = source.begin + num_nodes;
}

void Growth::hop(size_t relation, const DrawRule& rule, uint64_t key, int num_threads) {
  const Relation& columns = columns_[relation];
  OfType &target = types[columns.target], &source = types[columns.source];
  const int64_t num_rows = target.hop_end - target.hop_begin;
  choices_.resize(num_rows);
  ends_.resize(num_rows + 1);
  ends_[0] = 0;
  const int64_t* rows = target.ids.data() + target.hop_begin;
  for (int64_t i = 0; i < num_rows; ++i) {
    if (i + kAhead < num_rows) __builtin_prefetch(columns.indptr + rows[i + kAhead]);
    choices_[i] = offer(columns, rows[i], rule, time_);
    ends_[i + 1] = ends_[i] + choices_[i].count;
  }
  OfRelation& to = relations[relation];
  const int64_t num_edges = ends_[num_rows], count = to.count + num_edges;
  to.sources.reserve(count, to.count);
  to.targets.reserve(count, to.count);
  to.edges.reserve(count, to.count);
  source.ids.reserve(source.count + num_edges + 1, source.count);

  // Helpers pick; the caller picks too, and it alone relabels, so that places stay in its cache.
  const int64_t num_chunks = num_rows < kRowsWorthHelp ? 1 : (num_rows + kRowsPerChunk - 1) / kRowsPerChunk;
  if (num_chunks == 1 || num_threads == 1) {
    pick(relation, rule, key, 0, num_rows);
    relabel(relation, 0, num_edges);
  } else {
    std::vector<std::atomic<bool>> picked(num_chunks);
    int64_t next = 0;  // first chunk that is not relabelled yet
    const auto end_of = [&](int64_t chunk) { return std::min((chunk + 1) * kRowsPerChunk, num_rows); };
    const auto relabel_what_is_ready = [&] {
      for (; next < num_chunks && picked[next].load(std::memory_order_acquire); ++next)
        relabel(relation, ends_[next * kRowsPerChunk], ends_[end_of(next)] - ends_[next * kRowsPerChunk]);
    };
    const auto caller = std::this_thread::get_id();
    ThreadPool::instance().parallel_for(num_rows, kRowsPerChunk, num_threads, [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin / kRowsPerChunk; chunk * kRowsPerChunk < end; ++chunk) {
        pick(relation, rule, key, chunk * kRowsPerChunk, end_of(chunk));
        picked[chunk].store(true, std::memory_order_release);
        if (std::this_thread::get_id() == caller) relabel_what_is_ready();
      }
    });
    relabel_what_is_ready();
  }
  to.count = count;
}

void Growth::induce(size_t relation) {
  const Relation& columns = columns_[relation];
  const OfType &target = types[columns.target], &source = types[columns.source];
  OfRelation& to = relations[relation];
  to.count = edges_before_[relation];
  const DrawRule all{-1, false, false};
  for (int64_t row = target.begin; row < target.count; ++row) {
    const Choice choice = offer(columns, target.ids.data()[row], all, time_);
    to.sources.reserve(to.count + choice.count, to.count);
    to.targets.reserve(to.count + choice.count, to.count);
    to.edges.reserve(to.count + choice.count, to.count);
    for (int64_t edge = choice.start; edge < choice.start + choice.count; ++edge) {
      const int64_t place = source.places.find(columns.source_of(edge), apart_);
      if (place < 0) continue;
      to.sources[to.count] = static_cast<int32_t>(place);
      to.targets[to.count] = static_cast<int32_t>(row - target.begin);
      to.edges[to.count++] = edge;
    }
  }
}

}  // namespace graphmill
