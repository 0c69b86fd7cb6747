// Where the rows of a batch's nodes are for one rank: in its own parts, among rows of other parts that it holds, or
// among those that a window of batches fetches. One pass over the nodes, with no array between.
#pragma once
#include <cstdint>
#include <vector>

#include "node_table.h"

namespace graphmill {

// What the batches of a window need and the rank has not: each node once, in the order in which they were first met.
struct Window {
  NodeTable table;
  std::vector<int64_t> nodes;
};

struct FoundCounts {
  int64_t own = 0, held = 0;
};

// rows [count]: of each of `nodes`, counted on from own rows through held rows (null: none) to the window's.
// Throws std::invalid_argument on what is no node of the graph.
template <class Storage>
FoundCounts find_rows(const OwnRange<Storage>& range, const NodeTable* held, Window& window, const int64_t* nodes,
                      int64_t count, int64_t* rows);

}  // namespace graphmill
