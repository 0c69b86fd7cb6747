// Which place each node has in a list of nodes: a hash table of 12 bytes a slot, so that a rank that holds few of a
// graph's rows needs no array as long as the graph.
#pragma once
#include <cstdint>
#include <vector>

#include "shared/node_slots.h"

namespace graphmill {

class NodeTable {
 public:
  NodeTable() { make_room(kLeastRoom); }
  // Throws std::invalid_argument on a negative or repeated node, or 2^31 - 1 nodes and more.
  NodeTable(const int64_t* nodes, int64_t count);

  int64_t size() const { return size_; }
  // places[i]: of nodes[i] in the list, -1 if it is not there.
  void find(const int64_t* nodes, int64_t count, int64_t* places, int num_threads) const;

  void prefetch(int64_t node) const { __builtin_prefetch(nodes_.data() + slots().first(node)); }
  // Of one node, -1 if it is not there.
  int64_t find(int64_t node) const { return slots().find(node); }
  // Of one node, not negative, which is appended to the list if it is not there.
  int64_t find_or_append(int64_t node) {
    uint64_t slot = slots().search(node);
    if (nodes_[slot] == -1) {
      if (2 * (size_ + 1) > static_cast<int64_t>(mask_)) slot = grow(node);
      nodes_[slot] = node;
      places_[slot] = static_cast<int32_t>(size_++);
    }
    return places_[slot];
  }
  // Empty, but with the memory kept.
  void clear();

 private:
  static constexpr int64_t kLeastRoom = 1024;

  NodeSlots slots() const { return {nodes_.data(), places_.data(), mask_, shift_}; }
  void make_room(int64_t count);
  uint64_t grow(int64_t node);

  int64_t size_ = 0;
  uint64_t mask_;
  int shift_;
  std::vector<int64_t> nodes_;  // -1: the slot is free
  std::vector<int32_t> places_;
};

}  // namespace graphmill
