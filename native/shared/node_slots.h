// A hash table of nodes in arrays of the caller's: where a node is, or would be. Linear search, at most half full.
#pragma once
#include <cstdint>

#include "host_device.h"

namespace graphmill {

// The slot where the search for a node begins; `shift`: 64 less the bits of a slot's number.
GRAPHMILL_HD inline uint64_t first_slot(int64_t node, int shift) {
  return (static_cast<uint64_t>(node) * 0x9e3779b97f4a7c15u) >> shift;
}

// The slot that the node has, or would get. A free slot holds -1.
GRAPHMILL_HD inline uint64_t search_slot(const int64_t* nodes, uint64_t mask, int shift, int64_t node) {
  uint64_t slot = first_slot(node, shift);
  while (nodes[slot] != -1 && nodes[slot] != node) slot = (slot + 1) & mask;
  return slot;
}

}  // namespace graphmill
