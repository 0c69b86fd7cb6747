#include "node_table.h"

#include <bit>
#include <stdexcept>
#include <string>

#include "pool.h"

namespace graphmill {

namespace {

constexpr int64_t kAhead = 16;            // nodes whose slot is fetched ahead of its use
constexpr int64_t kNodesPerChunk = 4096;  // that one thread looks up at a time

}  // namespace

NodeTable::NodeTable(const int64_t* nodes, int64_t count) : size_(count) {
  if (count >= INT32_MAX) throw std::invalid_argument("a table holds at most 2^31 - 2 nodes");
  const uint64_t capacity = std::bit_ceil(static_cast<uint64_t>(2 * count + 2));  // at most half full: short searches
  mask_ = capacity - 1;
  shift_ = 64 - std::countr_zero(capacity);
  nodes_.assign(capacity, -1);
  places_.resize(capacity);
  for (int64_t place = 0; place < count; ++place) {
    const int64_t node = nodes[place];
    if (node < 0) throw std::invalid_argument("node " + std::to_string(node) + " is negative");
    uint64_t slot = slot_of(node);
    while (nodes_[slot] != -1 && nodes_[slot] != node) slot = (slot + 1) & mask_;
    if (nodes_[slot] == node) throw std::invalid_argument("node " + std::to_string(node) + " stands twice");
    nodes_[slot] = node;
    places_[slot] = static_cast<int32_t>(place);
  }
}

void NodeTable::find(const int64_t* nodes, int64_t count, int64_t* places, int num_threads) const {
  ThreadPool::instance().parallel_for(count, kNodesPerChunk, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) __builtin_prefetch(nodes_.data() + slot_of(nodes[i + kAhead]));
      uint64_t slot = slot_of(nodes[i]);
      while (nodes_[slot] != -1 && nodes_[slot] != nodes[i]) slot = (slot + 1) & mask_;
      places[i] = nodes_[slot] == -1 || nodes[i] < 0 ? -1 : places_[slot];
    }
  });
}

}  // namespace graphmill
