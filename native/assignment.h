// The linear assignment problem: exact, from any column potentials, dense or sparse.
//
// Minimise the sum of costs of pairs that give every row a column of its own (num_rows <= num_columns). Optimal
// potentials certify it: u[i] + v[j] <= cost(i, j) everywhere, equal on the pairs, v[j] <= 0 where there are more
// columns than rows, and 0 for those left over.
//
// The state between phases is v alone. A row's potential is its least reduced cost, min_j cost(i, j) - v[j], so that
// any v is feasible, and nothing that a caller hands in needs repair. Dense rows are read twice, once for v, once for
// the few candidates of each row (CandidateRows); the phases work on candidates, and go back to the matrix for a row
// only when its candidates no longer suffice:
//   1. v: given, or from row potentials or zero by one sweep (the min-trick, or column reduction). Where the least
//   pairs of columns leave few rows of a square problem over, it is nearly solved: these pairs are taken, phases 2 and
//   3 left out, and only rows that a search comes to are read again;
//   2. candidates and a greedy matching on tight pairs;
//   3. auctions, prices falling by at least epsilon (Bertsekas 1988), which leave potentials near the optimum, and a
//      greedy matching on what is tight then;
//   4. augmenting row reduction (Jonker and Volgenant 1987), a bounded number of steps;
//   5. shortest augmenting paths for the rows that are left (Dijkstra on candidates, a row widened when the search
//   passes
//      the bound on what it left out; rows that need many candidates are read whole);
//   6. where there are more columns than rows, and the given v was below 0 for one that is left over: shortest paths
//   from
//      such columns.
#pragma once
#include <cstdint>

#include "kernels/assignment.h"

namespace graphmill {

// Costs as they were given. Sparse: pairs that are not listed are infeasible; rows are indptr[i] … indptr[i + 1].
// Dense: indptr is null, costs are row-major, and +inf (floats only) marks an infeasible pair.
template <class C>
struct AssignmentCosts {
  int64_t num_rows, num_columns;
  const C* costs;
  const int64_t* indptr;
  const int32_t* indices;
};

struct AssignmentWork {  // what a solution took
  int64_t free_after_greedy, free_after_auction, free_after_reduction;
  int64_t bids, row_scans, rows_chosen, rows_widened, column_scans;
};

// What the solver begins with. kPairs: v, and pairs that are tight at it (columns[i], or -1), to which only the rows
// that have none are added.
enum class AssignmentStart : int { kCold, kRowPotentials, kColumnPotentials, kPairs };

struct AssignmentOptions {
  AssignmentStart start;
  int64_t candidates;  // of a row, at least; widened by as many again when they do not suffice
};

// columns[i]: of row i. They, u [num_rows] and v [num_columns] are read as `start` says, and overwritten. False: there
// is no assignment of every row. Finite costs (or +inf for infeasible pairs) are the caller's to check.
template <class C, class W>
bool solve_assignment(const AssignmentCosts<C>& costs, const AssignmentOptions& options, W* u, W* v, int64_t* columns,
                      AssignmentWork* work);

// How far u, v and the pairs are from being optimal together.
template <class W>
struct AssignmentCertificate {
  W largest_violation;  // of u[i] + v[j] <= cost(i, j)
  W largest_slack;      // |cost - u - v| of a pair
};
template <class C, class W>
AssignmentCertificate<W> certify_assignment(const AssignmentCosts<C>& costs, const W* u, const W* v,
                                            const int64_t* columns);

}  // namespace graphmill
