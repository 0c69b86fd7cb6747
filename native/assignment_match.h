// Pairs that are tight at the potentials of now, found in sweeps over the costs or among candidates.
#pragma once
#include <vector>

#include "assignment_search.h"

namespace graphmill {

// Column reduction: of a dense problem the least cost of each column becomes its potential, and rows that have it get
// the column, their first one. Whether all costs are finite.
template <class C, class W>
bool AssignmentSearch<C, W>::match_columns() {
  std::vector<int64_t> rows(static_cast<size_t>(costs_.num_columns));
  bool all_finite = true;
  assignment_kernels<C, W>().least_of_columns(costs_.costs, costs_.num_rows, costs_.num_columns, v_, rows.data(),
                                              &all_finite);
  for (int64_t j = 0; j < costs_.num_columns; ++j) {
    const auto i = static_cast<int32_t>(rows[static_cast<size_t>(j)]);
    if (i < 0) v_[j] = 0;  // no row can have it: found out by the search
    else if (column_of(i) < 0) assign(i, static_cast<int32_t>(j), v_[j]);
  }
  list_free_rows();
  work_->free_after_greedy = static_cast<int64_t>(free_.size());
  return all_finite;
}

// Rows get a free column among their tight ones, until more than `most` have gone without: false.
template <class C, class W>
bool AssignmentSearch<C, W>::match_rows(int64_t most) {
  forget_matching();
  for (int64_t i = 0; i < costs_.num_rows && most >= 0; ++i) {
    match_tight_of_all(i);
    most -= column_of(i) < 0;
  }
  list_free_rows();
  work_->free_after_greedy = static_cast<int64_t>(free_.size());
  return most >= 0;
}

// Give the row a free column among its tight ones.
template <class C, class W>
void AssignmentSearch<C, W>::match_tight(int64_t i) {
  const auto& row = rows_.row(i);
  if (row.is_whole) return match_tight_of_all(i);
  W least = kInfeasible<W>;
  int64_t chosen = -1;
  for (int64_t e = row.begin; e < row.end; ++e) {
    const int32_t column = rows_.columns()[e];
    const W reduced = rows_.costs()[e] - v_[column];
    const bool is_free = row_of_[static_cast<size_t>(column)] < 0;
    if (reduced < least) {
      least = reduced;
      chosen = is_free ? e : -1;
    } else if (reduced == least && chosen < 0 && is_free) {
      chosen = e;
    }
  }
  if (chosen >= 0) assign(static_cast<int32_t>(i), rows_.columns()[chosen], rows_.costs()[chosen]);
}

// Some tight columns at a time: of costs that differ little, a row has many.
template <class C, class W>
void AssignmentSearch<C, W>::match_tight_of_all(int64_t i) {
  const W least = least_of_all(i);
  if (least >= kInfeasible<W>) return;
  const int64_t first = rows_.first_column(i);
  match_tight_within(i, least, first, costs_.num_columns);
  if (column_of(i) < 0) match_tight_within(i, least, 0, first);
}

template <class C, class W>
void AssignmentSearch<C, W>::match_tight_within(int64_t i, W least, int64_t begin, int64_t end) {
  constexpr int64_t kAtOnce = 8;
  int32_t columns[kAtOnce];
  W costs[kAtOnce];
  while (begin < end) {
    const int64_t count =
        assignment_kernels<C, W>().columns_within(rows_.dense_row(i), v_, begin, end, least, kAtOnce, columns, costs);
    for (int64_t e = 0; e < count; ++e)
      if (row_of_[static_cast<size_t>(columns[e])] < 0) return assign(static_cast<int32_t>(i), columns[e], costs[e]);
    begin = count < kAtOnce ? end : columns[kAtOnce - 1] + 1;
  }
}

}  // namespace graphmill
