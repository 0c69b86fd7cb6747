// Sweeps over one row of a cost matrix, built once per instruction set. C is what costs are stored as, W what
// potentials and reduced costs are computed in: double for floats, int64_t for integers.
#pragma once
#include <cstdint>
#include <limits>

namespace graphmill {

template <class W>
constexpr W kInfeasible =
    std::numeric_limits<W>::has_infinity ? std::numeric_limits<W>::infinity() : std::numeric_limits<W>::max() / 4;

template <class C, class W>
struct AssignmentKernels {
  // The least cost of each column and the first row that has it; columns without a cost below kInfeasible keep that and
  // no row, -1. Clears the flag where a cost is infinite or NaN.
  void (*least_of_columns)(const C* costs, int64_t num_rows, int64_t num_columns, W* least, int64_t* rows,
                           bool* all_finite);
  // potentials[j] = min(potentials[j], row[j] - u).
  void (*lower_potentials)(W* potentials, const C* row, W u, int64_t num_columns);
  // min over j of row[j] - potentials[j], NaN left out. Clears the flag where a difference is infinite or NaN.
  W (*least_reduced)(const C* row, const W* potentials, int64_t num_columns, bool* all_finite);
  // The two smallest row[j] - potentials[j], and the first column of the smallest.
  int64_t (*two_least)(const C* row, const W* potentials, int64_t num_columns, W* least, W* second);
  // Columns j with row[j] - potentials[j] - shift < min(distances[j], limit), ascending, and their costs; both have
  // room for num_columns + 8.
  int64_t (*columns_closer)(const C* row, const W* potentials, W shift, const W* distances, W limit,
                            int64_t num_columns, int32_t* columns, W* costs);
  // Columns j in [begin, end) with row[j] - potentials[j] <= limit, ascending; stops after `capacity` of them. Columns
  // and costs have room for capacity + 8.
  int64_t (*columns_within)(const C* row, const W* potentials, int64_t begin, int64_t end, W limit, int64_t capacity,
                            int32_t* columns, W* costs);
};

}  // namespace graphmill
