// The last phase of the assignment solver, where there are more columns than rows.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "assignment_search.h"

namespace graphmill {

// Dijkstra from a column that is left over, over rows: the potentials of rows fall and those of their columns rise,
// until the column's own is 0, or that of a column on the way is, which is then left over instead.
template <class C, class W>
void AssignmentSearch<C, W>::release(int32_t column) {
  const auto num_rows = static_cast<size_t>(costs_.num_rows);
  std::vector<W> distance(num_rows, kInfeasible<W>);
  std::vector<int32_t> column_before(num_rows, -1);
  std::vector<char> is_done(num_rows, 0);
  std::vector<int32_t> done;
  W end = -v_[column];
  int32_t last_row = -1;  // whose column is left over in the end
  int32_t from = column;
  W base{};
  while (true) {
    ++work_->column_scans;
    for (size_t i = 0; i < num_rows; ++i) {
      if (is_done[i]) continue;
      const W cost = cost_at(static_cast<int64_t>(i), from);
      if (cost >= kInfeasible<W>) continue;
      const W u = cost_of_[i] - v_[column_of_[i]];
      const W reached = base + std::max(W{}, cost - u - v_[from]);
      if (reached < distance[i]) {
        distance[i] = reached;
        column_before[i] = from;
      }
    }
    int32_t next = -1;
    for (size_t i = 0; i < num_rows; ++i)
      if (!is_done[i] && (next < 0 || distance[i] < distance[static_cast<size_t>(next)]))
        next = static_cast<int32_t>(i);
    if (next < 0 || !(distance[static_cast<size_t>(next)] < end)) break;
    is_done[static_cast<size_t>(next)] = 1;
    done.push_back(next);
    from = column_of_[static_cast<size_t>(next)];
    base = distance[static_cast<size_t>(next)];
    if (base - v_[from] < end) {
      end = base - v_[from];
      last_row = next;
    }
  }
  v_[column] += end;
  for (const int32_t i : done) {
    const W moved = end - distance[static_cast<size_t>(i)];
    if (moved > 0) v_[column_of_[static_cast<size_t>(i)]] += moved;
  }
  if (last_row < 0) {
    v_[column] = 0;
    return;
  }
  const int32_t released = column_of_[static_cast<size_t>(last_row)];
  v_[released] = 0;
  row_of_[static_cast<size_t>(released)] = -1;
  for (int32_t i = last_row;;) {
    const int32_t taken = column_before[static_cast<size_t>(i)];
    const int32_t owner = row_of_[static_cast<size_t>(taken)];
    row_of_[static_cast<size_t>(taken)] = i;
    column_of_[static_cast<size_t>(i)] = taken;
    cost_of_[static_cast<size_t>(i)] = cost_at(i, taken);
    if (taken == column) return;
    i = owner;
  }
}

}  // namespace graphmill
