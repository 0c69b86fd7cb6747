// Sums along the edges against their direction: what all rows that name a node give it.
#pragma once
#include <cstdint>

namespace graphmill {

// sums[u] += values[v] for every entry u of every row v, in the order of the rows: the number of threads changes no
// bit. Rows of value 0 are passed over. Rows ascend; an entry outside [0, num_nodes) is not written anywhere.
template <class Index>
void sum_by_source(const int64_t* indptr, const Index* indices, int64_t num_rows, int64_t num_nodes,
                   const double* values, double* sums, int num_threads);

}  // namespace graphmill
