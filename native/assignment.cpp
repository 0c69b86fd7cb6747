#include "assignment.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "assignment_match.h"
#include "assignment_release.h"

namespace graphmill {

template <>
const AssignmentKernels<float, double>& assignment_kernels() {
  return kernels().assignment_float;
}
template <>
const AssignmentKernels<double, double>& assignment_kernels() {
  return kernels().assignment_double;
}
template <>
const AssignmentKernels<int64_t, int64_t>& assignment_kernels() {
  return kernels().assignment_int64;
}

namespace {

constexpr int64_t kBidsPerRow = 20;  // of an auction: prices of few columns can fall for long
constexpr int64_t kStepsPerRow = 4;  // of a row reduction, for the same reason
constexpr int64_t kRowReductions = 2;
// Epsilon of an auction, in typical distances of a row's second best pair from its best. It begins where few bids
// suffice, a step higher as long as they do not, and falls from there to the last, at which what is left for paths is
// little.
constexpr double kFirstEpsilon = 4.0, kFirstOfGiven = 0.25, kLastEpsilon = 0.0625, kStepUp = 16.0, kStepDown = 4.0;
// Given potentials may be near the optimum: a large epsilon would take them away from it.
constexpr int64_t kFewBidsPerRow = 4, kMostStepsUp = 4;

// A cold problem is nearly solved where the least pairs of its columns leave at most so many sixteenths of the rows
// over, or the least pairs of its rows few, and row reduction few of those. Of uniform costs six sixteenths are left
// over by columns, and auctions pay; of costs of low rank almost all by columns, and almost none by rows.
constexpr int64_t kSixteenthsOver = 5, kShareAfterReduction = 32;

// v[j] = min over i of cost(i, j) - u[i]; u null: 0. At most 0 where there are more columns than rows.
template <class C, class W>
void lower_columns(const AssignmentCosts<C>& costs, const W* u, W* v) {
  const bool is_square = costs.num_rows == costs.num_columns;
  std::fill(v, v + costs.num_columns, is_square ? kInfeasible<W> : W{});
  if (!is_square && u == nullptr) return;
  for (int64_t i = 0; i < costs.num_rows; ++i) {
    const W of_row = u == nullptr ? W{} : u[i];
    if (costs.indptr == nullptr) {
      assignment_kernels<C, W>().lower_potentials(v, costs.costs + i * costs.num_columns, of_row, costs.num_columns);
    } else {
      for (int64_t e = costs.indptr[i]; e < costs.indptr[i + 1]; ++e)
        v[costs.indices[e]] = std::min(v[costs.indices[e]], static_cast<W>(costs.costs[e]) - of_row);
    }
  }
  for (int64_t j = 0; j < costs.num_columns; ++j)
    if (v[j] >= kInfeasible<W>) v[j] = 0;  // no row can have it: found out by the search
}

// Costs are finite, or +inf for an infeasible pair.
template <class C>
void refuse_odd_costs(const AssignmentCosts<C>& costs) {
  if constexpr (std::numeric_limits<C>::has_infinity) {
    for (int64_t i = 0; i < costs.num_rows; ++i)
      for (int64_t j = 0; j < costs.num_columns; ++j) {
        const C cost = costs.costs[i * costs.num_columns + j];
        if (std::isnan(cost) || cost == -std::numeric_limits<C>::infinity())
          throw std::invalid_argument("the cost of row " + std::to_string(i) + ", column " + std::to_string(j) +
                                      " is " + (std::isnan(cost) ? "NaN" : "-inf"));
      }
  }
}

// Potentials near the optimum, and a matching of what is tight at them.
template <class C, class W>
void hold_auctions(AssignmentSearch<C, W>& search, int64_t num_rows, double spacing, double epsilon) {
  const auto hold = [&](double epsilon, int64_t bids_per_row) {
    const W step = static_cast<W>(spacing * epsilon);
    return step > 0 ? search.auction(step, bids_per_row * num_rows) : true;
  };
  for (int64_t up = 0; up < kMostStepsUp && !hold(epsilon, kFewBidsPerRow); ++up) epsilon *= kStepUp;
  while ((epsilon /= kStepDown) >= kLastEpsilon) hold(epsilon, kBidsPerRow);
  search.rematch();
}

template <class C, class W>
void reduce_rows(AssignmentSearch<C, W>& search, int64_t num_rows) {
  for (int64_t pass = 0; pass < kRowReductions; ++pass) search.reduce_rows(kStepsPerRow * num_rows);
}

// Phases 3 and 4. Columns that lose their row in an auction, and are left over, cost a search each: with more columns
// than rows it is held only where the reduction leaves much to do. Where a row's best pairs are equal (spacing 0) there
// is nothing for an auction to tell apart.
template <class C, class W>
void prepare_search(AssignmentSearch<C, W>& search, const AssignmentCosts<C>& costs, const AssignmentWork& work,
                    bool is_cold) {
  const double epsilon = is_cold ? kFirstEpsilon : kFirstOfGiven;
  const double spacing = search.spacing();
  const bool is_square = costs.num_rows == costs.num_columns;
  if (is_square && work.free_after_greedy > 0 && spacing > 0) hold_auctions(search, costs.num_rows, spacing, epsilon);
  reduce_rows(search, costs.num_rows);
  if (is_square || !(spacing > 0) || work.free_after_reduction * 4 <= costs.num_rows) return;
  hold_auctions(search, costs.num_rows, spacing, epsilon);
  reduce_rows(search, costs.num_rows);
}

}  // namespace

template <class C, class W>
bool solve_assignment(const AssignmentCosts<C>& costs, const AssignmentOptions& options, W* u, W* v, int64_t* columns,
                      AssignmentWork* work) {
  const bool is_square = costs.num_rows == costs.num_columns, is_cold = options.start == AssignmentStart::kCold;
  AssignmentSearch<C, W> search(costs, options.candidates, v, work);
  bool is_nearly_solved = false;
  if (is_cold && is_square && costs.indptr == nullptr) {
    is_nearly_solved = search.match_columns() && (work->free_after_greedy * 16 <= costs.num_rows * kSixteenthsOver ||
                                                  search.match_rows(costs.num_rows / kShareAfterReduction));
  } else if (options.start >= AssignmentStart::kColumnPotentials) {
    for (int64_t j = 0; j < costs.num_columns && !is_square; ++j) v[j] = std::min(v[j], W{});
  } else {
    lower_columns<C, W>(costs, is_cold ? nullptr : u, v);
  }
  if (options.start == AssignmentStart::kPairs) {
    search.begin_with(columns);
    is_nearly_solved = true;
  } else if (is_nearly_solved) {
    reduce_rows(search, costs.num_rows);
    is_nearly_solved = work->free_after_reduction * kShareAfterReduction <= costs.num_rows;
  }
  if (!is_nearly_solved) {
    search.choose_candidates();
    if (costs.indptr == nullptr && !search.all_finite()) refuse_odd_costs(costs);
    prepare_search(search, costs, *work, is_cold);
  }
  if (!search.augment_all()) return false;
  if (!is_square) search.release_columns();
  for (int64_t i = 0; i < costs.num_rows; ++i) {
    columns[i] = search.column_of(i);
    u[i] = search.cost_of(i) - v[columns[i]];
  }
  return true;
}

template <class C, class W>
AssignmentCertificate<W> certify_assignment(const AssignmentCosts<C>& costs, const W* u, const W* v,
                                            const int64_t* columns) {
  AssignmentCertificate<W> found{W{}, W{}};
  for (int64_t i = 0; i < costs.num_rows; ++i) {
    W least = kInfeasible<W>, of_pair = kInfeasible<W>;
    if (costs.indptr == nullptr) {
      const C* row = costs.costs + i * costs.num_columns;
      bool ignored = true;
      least = assignment_kernels<C, W>().least_reduced(row, v, costs.num_columns, &ignored);
      of_pair = static_cast<W>(row[columns[i]]);
    } else {
      for (int64_t e = costs.indptr[i]; e < costs.indptr[i + 1]; ++e) {
        const int32_t j = costs.indices[e];
        least = std::min(least, static_cast<W>(costs.costs[e]) - v[j]);
        if (j == columns[i]) of_pair = static_cast<W>(costs.costs[e]);
      }
    }
    found.largest_violation = std::max(found.largest_violation, u[i] - least);
    const W slack = of_pair - u[i] - v[columns[i]];
    found.largest_slack = std::max(found.largest_slack, slack < 0 ? -slack : slack);
  }
  return found;
}

#define GRAPHMILL_ASSIGNMENT(C, W)                                                                            \
  template bool solve_assignment<C, W>(const AssignmentCosts<C>&, const AssignmentOptions&, W*, W*, int64_t*, \
                                       AssignmentWork*);                                                      \
  template AssignmentCertificate<W> certify_assignment<C, W>(const AssignmentCosts<C>&, const W*, const W*,   \
                                                             const int64_t*);
GRAPHMILL_ASSIGNMENT(float, double)
GRAPHMILL_ASSIGNMENT(double, double)
GRAPHMILL_ASSIGNMENT(int64_t, int64_t)
#undef GRAPHMILL_ASSIGNMENT

}  // namespace graphmill
