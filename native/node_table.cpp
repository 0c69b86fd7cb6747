#include "node_table.h"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>
#include <utility>

#include "pool.h"

namespace graphmill {

namespace {

constexpr int64_t kAhead = 16;            // nodes whose slot is fetched ahead of its use
constexpr int64_t kNodesPerChunk = 4096;  // that one thread looks up at a time

}  // namespace

NodeTable::NodeTable(const int64_t* nodes, int64_t count) {
  make_room(count);
  for (int64_t place = 0; place < count; ++place) {
    const int64_t node = nodes[place];
    if (node < 0) throw std::invalid_argument("node " + std::to_string(node) + " is negative");
    if (find_or_append(node) != place) throw std::invalid_argument("node " + std::to_string(node) + " stands twice");
  }
}

void NodeTable::make_room(int64_t count) {
  if (count >= INT32_MAX) throw std::invalid_argument("a table holds at most 2^31 - 2 nodes");
  const uint64_t capacity = std::bit_ceil(static_cast<uint64_t>(2 * count + 2));  // at most half full: short searches
  mask_ = capacity - 1;
  shift_ = 64 - std::countr_zero(capacity);
  nodes_.assign(capacity, -1);
  places_.resize(capacity);
}

void NodeTable::clear() {
  std::fill(nodes_.begin(), nodes_.end(), -1);
  size_ = 0;
}

// Returns the slot that the node, which is not there, would get.
uint64_t NodeTable::grow(int64_t node) {
  const std::vector<int64_t> nodes = std::move(nodes_);
  const std::vector<int32_t> places = std::move(places_);
  make_room(2 * (size_ + 1));
  for (size_t old = 0; old < nodes.size(); ++old) {
    if (nodes[old] == -1) continue;
    const uint64_t slot = slots().search(nodes[old]);
    nodes_[slot] = nodes[old];
    places_[slot] = places[old];
  }
  return slots().search(node);
}

void NodeTable::find(const int64_t* nodes, int64_t count, int64_t* places, int num_threads) const {
  ThreadPool::instance().parallel_for(count, kNodesPerChunk, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) prefetch(nodes[i + kAhead]);
      places[i] = nodes[i] < 0 ? -1 : find(nodes[i]);
    }
  });
}

}  // namespace graphmill
