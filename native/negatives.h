// Pairs of nodes that are no edges: drawn, and checked against the edges that are known.
#pragma once
#include <cstdint>

namespace graphmill {

// In columns whose rows ascend by source, the times of edges between the same two nodes ascending.
struct KnownEdges {
  const int64_t* indptr;   // [num_targets + 1]
  const int32_t* sources;  // [num_edges]
  const int64_t* times;    // [num_edges], or null: edges of all times count
};

// Write to found [count] whether each pair is an edge; `at`: until that time [count], or null.
void find_edges(const KnownEdges& known, const int64_t* sources, const int64_t* targets, const int64_t* at,
                int64_t count, bool* found, int num_threads);

struct Candidates {  // for one end of a negative
  int64_t count;
  const double* weights;  // cumulative [count], or null: uniform
  const int64_t* times;   // [count] since when each node exists, or null
};

struct Negatives {
  int64_t count;
  const int64_t* given;    // [count] sources, or null: they are drawn too
  const int64_t* times;    // [count] what exists then is meant, or null: what exists at any time
  const int64_t* numbers;  // [count] what draws are keyed by beside `key`, or null: their places in the list
  uint64_t key;
  int tries;  // draws for each; where all failed, the target is -1
};

// Write sources [count] (copied where they are given) and targets [count]. Returns how many were not found.
// `known`: null: any pair will do.
int64_t draw_negatives(const KnownEdges* known, const Candidates& sources, const Candidates& targets,
                       const Negatives& wanted, int64_t* source_out, int64_t* target_out, int num_threads);

}  // namespace graphmill
