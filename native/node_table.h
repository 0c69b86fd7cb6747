// Which place each node has in a list of nodes: a hash table of 12 bytes a slot, so that a rank that holds few of a
// graph's rows needs no array as long as the graph.
#pragma once
#include <cstdint>
#include <vector>

namespace graphmill {

class NodeTable {
 public:
  // Throws std::invalid_argument on a negative or repeated node, or 2^31 - 1 nodes and more.
  NodeTable(const int64_t* nodes, int64_t count);

  int64_t size() const { return size_; }
  // places[i]: of nodes[i] in the list, -1 if it is not there.
  void find(const int64_t* nodes, int64_t count, int64_t* places, int num_threads) const;

 private:
  uint64_t slot_of(int64_t node) const { return (static_cast<uint64_t>(node) * 0x9e3779b97f4a7c15u) >> shift_; }

  int64_t size_;
  uint64_t mask_;
  int shift_;
  std::vector<int64_t> nodes_;  // -1: the slot is free
  std::vector<int32_t> places_;
};

}  // namespace graphmill
