// Edges as a list, put into columns: the in-edges of every node, one row after another.
#pragma once
#include <cstdint>

namespace graphmill {

template <class Id>
struct EdgeList {
  const Id* sources;  // [count]
  const Id* targets;  // [count]
  int64_t count;
  int64_t num_sources, num_targets;  // nodes at either end
};

// Fill indptr [num_targets + 1], indices [count] and order [count] (which edge of the list each entry is). A row's
// entries ascend by source; entries of one source stand as they were given. Two stable counting sorts, one where the
// sources ascend already. Returns whether every edge stayed where it was: then `order` was not written.
// Throws std::invalid_argument on an id out of range.
template <class Id>
bool compress(const EdgeList<Id>& edges, int64_t* indptr, int32_t* indices, int64_t* order, int num_threads);

// Sort the entries of every row by `times` [count] (of the entries), entries of one time as they stand; `indices`,
// `order` and `times` move together.
void sort_rows_by_time(const int64_t* indptr, int64_t num_rows, int32_t* indices, int64_t* order, int64_t* times,
                       int num_threads);

// cumulative[e]: the sum of the weights of e's row up to e. Throws std::invalid_argument on one that is negative,
// infinite or NaN.
void accumulate_weights(const int64_t* indptr, int64_t num_rows, const double* weights, double* cumulative);

}  // namespace graphmill
