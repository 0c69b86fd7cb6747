// The first half of sampling: which in-edges a hop takes. It reads the topology and needs no batch, so a hop can be
// picked where its rows are stored.
#pragma once
#include <cstdint>

#include "buffer.h"

namespace graphmill {

// The rows that a hop asks for. Identity and place are two things: draws are keyed by `nodes`, in-edges are read at
// `places`. In a graph that is stored whole both are the same numbers.
struct Rows {
  const int64_t* nodes;   // [count]: identity
  const int64_t* places;  // [count]: rows of indptr
  int64_t count;
  int64_t fanout;  // at most this many in-edges of each; < 0: all
  uint64_t key;    // of the hop

  int64_t num_picked(int64_t degree) const { return fanout < 0 || degree < fanout ? degree : fanout; }
};

struct Spans {  // where the in-edges of each row are
  Buffer<int64_t> starts, degrees;
};

// In-neighbours in compressed sparse columns; the arrays are the caller's.
template <class Index>
class Picker {
 public:
  // Rows are those of a part, or of the whole graph; ids are of a graph with `num_nodes`. Throws std::invalid_argument
  // if indptr decreases or an id is not a node: whatever is picked later is a node.
  Picker(const int64_t* indptr, const Index* indices, int64_t num_rows, int64_t num_edges, int64_t num_nodes,
         int num_threads);

  int64_t num_rows() const { return num_rows_; }

  // Find the rows: fill `spans`, and ends[i + 1] = ends[i] + the number of in-edges that row i gives; ends[0] is given.
  void locate(const Rows& rows, Spans& spans, int64_t* ends) const;

  // Pick the in-edges of rows [begin, end): the ids of their sources and, unless null, their positions. Row i's begin
  // at ends[i] of both arrays.
  template <class Id>
  void pick(const Rows& rows, const Spans& spans, const int64_t* ends, int64_t begin, int64_t end, Id* sources,
            int64_t* edge_ids) const;

 private:
  const int64_t* indptr_;
  const Index* indices_;
  int64_t num_rows_;
};

// Write the positions of `count` of the `degree` in-edges that begin at `start` to `picked`, no position twice.
void pick_edges(int64_t start, int64_t degree, int64_t count, uint64_t node_key, int64_t* picked);

}  // namespace graphmill
