// Where nodes are: in a hash table whose arrays are the caller's, and among the rows that a rank has itself.
#pragma once
#include <cstdint>

#include "host_device.h"

namespace graphmill {

// Linear search, at most half full. The place of a node is its number in the list that the table was made of.
struct NodeSlots {
  const int64_t* nodes;   // [mask + 1]; -1: the slot is free
  const int32_t* places;  // [mask + 1]
  uint64_t mask;
  int shift;  // 64 less the bits of a slot's number

  GRAPHMILL_HD uint64_t first(int64_t node) const {
    return (static_cast<uint64_t>(node) * 0x9e3779b97f4a7c15u) >> shift;
  }
  // The slot that the node has, or would get.
  GRAPHMILL_HD uint64_t search(int64_t node) const {
    uint64_t slot = first(node);
    while (nodes[slot] != -1 && nodes[slot] != node) slot = (slot + 1) & mask;
    return slot;
  }
  // Its place, -1 if it is not there.
  GRAPHMILL_HD int64_t find(int64_t node) const {
    const uint64_t slot = search(node);
    return nodes[slot] == -1 ? -1 : places[slot];
  }
};

// A rank's view of where nodes are stored. The storage ids from own_begin to own_end are its own parts', row after row.
template <class Storage>
struct OwnRange {
  const Storage* storage;  // [num_nodes], of each node
  int64_t num_nodes, own_begin, own_end;

  GRAPHMILL_HD int64_t num_own() const { return own_end - own_begin; }
  // The row of a node among the rank's own, -1 if it is not one of them.
  GRAPHMILL_HD int64_t own_row(int64_t node) const {
    const int64_t row = storage[node] - own_begin;
    return static_cast<uint64_t>(row) < static_cast<uint64_t>(num_own()) ? row : -1;
  }
};

}  // namespace graphmill
