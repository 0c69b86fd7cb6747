// Pairs of nodes that are no edges: drawn, and checked against the edges that are known.
#pragma once
#include <cstdint>

namespace graphmill {

// In columns whose rows ascend by source, the times of edges between the same two nodes ascending.
struct KnownEdges {
  const int64_t* indptr;   // [num_targets + 1]
  const int32_t* sources;  // [num_edges]
  const int64_t* times;    // [num_edges], or null: edges of all times count

  // Whether there is such an edge, at `time` or before.
  bool has(int64_t source, int64_t target, const int64_t* time) const;
};

struct Candidates {  // for one end of a negative
  int64_t count;
  const double* weights;  // cumulative [count], or null: uniform
  const int64_t* times;   // [count] since when each node exists, or null
};

struct Negatives {
  int64_t count;
  const int64_t* given;  // [count] sources, or null: they are drawn too
  const int64_t* times;  // [count] what exists then is meant, or null: what exists at any time
  uint64_t key;          // draws are keyed by it and the place in the list
  int tries;             // draws for each; where all failed, the target is -1
};

// Write sources [count] (copied where they are given) and targets [count]. Returns how many were not found.
// `known`: null: any pair will do.
int64_t draw_negatives(const KnownEdges* known, const Candidates& sources, const Candidates& targets,
                       const Negatives& wanted, int64_t* source_out, int64_t* target_out, int num_threads);

}  // namespace graphmill
