// Negatives: pairs are drawn, and checked against the edges that are known.
#pragma once
#include <cstdint>

#include "shared/pairs.h"

namespace graphmill {

// Write to found [count] whether each pair is an edge; `at`: until that time [count], or null.
void find_edges(const KnownEdges& known, const int64_t* sources, const int64_t* targets, const int64_t* at,
                int64_t count, bool* found, int num_threads);

// Write sources [count] (copied where they are given) and targets [count]. Returns how many were not found.
// `known`: null: any pair will do.
int64_t draw_negatives(const KnownEdges* known, const Candidates& sources, const Candidates& targets,
                       const Negatives& wanted, int64_t* source_out, int64_t* target_out, int num_threads);

}  // namespace graphmill
