// A batch on a device: its rows, what they offer, and which number each of its nodes has.
#pragma once
#include <cstdint>

#include "shared/node_slots.h"
#include "shared/random.h"

namespace graphmill {

__device__ inline int64_t this_thread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

// The rows of one hop; edges of row i lie from ends[i] to ends[i + 1].
struct HopRows {
  const int64_t* nodes;      // of the batch: what draws are keyed by
  const int64_t* places;     // by node of the batch: rows of indptr; null: the nodes' own numbers
  const int32_t* subgraphs;  // by node of the batch, a coordinate of its draws; null: one for all
  const int64_t* times;      // by subgraph: edges later than that do not exist yet; null: all do
  const int64_t* span;       // [2] which nodes of the batch ask
  int64_t room;

  __device__ int64_t count() const { return span[1] - span[0]; }
  __device__ int64_t place(int64_t node) const { return places ? places[node] : nodes[node]; }
  __device__ const int64_t* time(int64_t node) const { return times ? times + subgraphs[node] : nullptr; }
  __device__ uint64_t key(uint64_t key_of_hop, int64_t i) const {
    const int64_t node = span[0] + i;
    const uint64_t key = subkey(key_of_hop, static_cast<uint64_t>(nodes[node]));
    return subgraphs ? subkey(key, static_cast<uint64_t>(subgraphs[node])) : key;
  }
};

struct Spans {  // what each row of the hop offers
  int64_t* starts;
  int64_t* available;
  const int64_t* ends;  // [room + 1]
};

// What is known of a batch: which number each node, or each (subgraph, node), has in it.
struct Places {
  uint32_t* position;  // by node, or by slot of `keys`; kUnknown: not met
  int64_t* keys;       // [mask + 1] subgraph * stride + node, -1: free; null: positions are by node
  int64_t stride;
  uint64_t mask;
  int shift;

  __device__ int64_t key(int64_t subgraph, int64_t node) const { return subgraph * stride + node; }
};

constexpr uint32_t kUnknown = 0xffffffffu;

// The slot of a key, which is put in if it is not there. Where it lies depends on who comes first; nothing else does.
__device__ inline int32_t claim(const Places& places, int64_t key) {
  const NodeSlots slots{places.keys, nullptr, places.mask, places.shift};
  uint64_t slot = slots.first(key);
  for (;; slot = (slot + 1) & places.mask) {
    const auto found = static_cast<int64_t>(atomicCAS(reinterpret_cast<unsigned long long*>(places.keys + slot), ~0ull,
                                                      static_cast<unsigned long long>(key)));
    if (found == -1 || found == key) return static_cast<int32_t>(slot);
  }
}

__device__ inline uint32_t find_place(const Places& places, int64_t subgraph, int64_t node) {
  if (!places.keys) return places.position[node];
  const NodeSlots slots{places.keys, nullptr, places.mask, places.shift};
  const uint64_t slot = slots.search(places.key(subgraph, node));
  return places.keys[slot] == -1 ? kUnknown : places.position[slot];
}

// Edges that are met first give their nodes their numbers: the least wins, whatever the order in which threads come.
__device__ inline void meet(const Places& places, int64_t slot, uint32_t number) {
  if (places.position[slot] > number) atomicMin(places.position + slot, number);
}

struct TakenAcrossWarp {  // by all lanes of a warp together, of what they have written
  const int64_t* picked;
  int64_t start;
  uint32_t count, lane;
  __device__ bool holds(uint64_t position) const {
    __syncwarp();
    bool mine = false;
    for (uint32_t i = lane; i < count; i += 32) mine |= picked[i] == start + static_cast<int64_t>(position);
    return __any_sync(~0u, mine);
  }
  __device__ void add(uint64_t) { ++count; }
};

}  // namespace graphmill
