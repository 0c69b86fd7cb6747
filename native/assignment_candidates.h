// The few pairs of each row that may matter, with a bound on all others.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "assignment.h"
#include "kernels.h"

namespace graphmill {

template <class C, class W>
const AssignmentKernels<C, W>& assignment_kernels();

// Candidates of a row are pairs of small reduced cost at the v of when they were chosen. All others had a reduced cost
// of at least `beyond`; since v only falls, they still do, so a phase that sees reduced costs up to `beyond` has seen
// all that matter.
template <class C, class W>
class CandidateRows {
 public:
  CandidateRows(const AssignmentCosts<C>& costs, int64_t wanted)
      : costs_(costs), wanted_(std::max<int64_t>(wanted, 2)), rows_(static_cast<size_t>(costs.num_rows)) {
    if (costs.indptr == nullptr) {
      for (Row& row : rows_) row.beyond = -kInfeasible<W>;
    } else {
      take_all_of_sparse();
    }
  }

  struct Row {
    int64_t begin = 0, end = 0;
    W beyond = kInfeasible<W>;
    int64_t wanted = 0;
    bool is_whole = false;  // no list: all columns are candidates, and are read from the matrix
  };
  const Row& row(int64_t i) const { return rows_[static_cast<size_t>(i)]; }
  const int32_t* columns() const { return columns_.data(); }
  const W* costs() const { return values_.data(); }
  // Of a row that is not chosen yet nothing is known: no candidates, and no bound on what is left out.
  bool is_chosen(int64_t i) const { return costs_.indptr != nullptr || row(i).wanted > 0; }
  bool all_finite() const { return all_finite_; }
  const C* dense_row(int64_t i) const { return costs_.costs + i * costs_.num_columns; }

  // Where to begin to look for columns of a row, another one for each: rows with many equal pairs shall not all choose
  // the same.
  int64_t first_column(int64_t i) const {
    return static_cast<int64_t>(static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15ull >> 11) % costs_.num_columns;
  }

  // Choose candidates of a dense row anew, at the potentials of now.
  void choose(int64_t i, const W* v) { choose(i, v, wanted_); }

  // Twice as many as it has.
  void widen(int64_t i, const W* v) { choose(i, v, 2 * rows_[static_cast<size_t>(i)].wanted); }

 private:
  static constexpr int64_t kListedShare = 8;  // a list of more than 1/8 of the columns takes longer than a sweep

  void choose(int64_t i, const W* v, int64_t wanted) {
    if (costs_.indptr != nullptr) return;
    Row& row = rows_[static_cast<size_t>(i)];
    row.wanted = wanted;
    row.begin = static_cast<int64_t>(columns_.size());
    const int64_t most = costs_.num_columns;
    row.is_whole = row.wanted * kListedShare >= most;
    if (row.is_whole) {
      row.beyond = kInfeasible<W>;
      assignment_kernels<C, W>().least_reduced(dense_row(i), v, most, &all_finite_);
    } else {
      row.beyond = choose_some(i, v, row);
    }
    row.end = static_cast<int64_t>(columns_.size());
  }

  static W largest_finite() {
    return std::numeric_limits<W>::has_infinity ? std::numeric_limits<W>::max() : kInfeasible<W>;
  }
  void reserve(int64_t more) {
    // The arena grows by halves, and is cut to what was taken: a row's candidates lie together.
    const size_t needed = columns_.size() + static_cast<size_t>(more) + 8;
    if (needed > columns_.capacity()) {
      const size_t grown = std::max(needed, columns_.capacity() + columns_.capacity() / 2);
      columns_.reserve(grown);
      values_.reserve(grown);
    }
  }

  // Appends the columns within the limit, from `first_column` on. Returns how many, `capacity` where there are as many
  // or more.
  int64_t take(int64_t i, const W* v, int64_t begin, W limit, int64_t capacity) {
    const int64_t n = costs_.num_columns;
    const int64_t first = first_column(i);
    const auto at = static_cast<size_t>(begin);
    columns_.resize(at + static_cast<size_t>(capacity) + 8);
    values_.resize(at + static_cast<size_t>(capacity) + 8);
    const auto& sweeps = assignment_kernels<C, W>();
    int32_t* columns = columns_.data() + at;
    W* values = values_.data() + at;
    int64_t count = sweeps.columns_within(dense_row(i), v, first, n, limit, capacity, columns, values);
    if (count < capacity)
      count +=
          sweeps.columns_within(dense_row(i), v, 0, first, limit, capacity - count, columns + count, values + count);
    columns_.resize(at + static_cast<size_t>(count));
    values_.resize(at + static_cast<size_t>(count));
    return count;
  }

  // About row.wanted candidates. Rows are alike, so the distance from the least to the last one wanted is guessed from
  // the rows before; where the guess fails, it is found by selection.
  W choose_some(int64_t i, const W* v, const Row& row) {
    const int64_t capacity = 3 * row.wanted;
    const W least = assignment_kernels<C, W>().least_reduced(dense_row(i), v, costs_.num_columns, &all_finite_);
    if (least >= kInfeasible<W>) return kInfeasible<W>;
    reserve(capacity);
    // Where pairs are infeasible, as in gated frames, a row often has only a few others.
    if (!all_finite_ && take(i, v, row.begin, largest_finite(), capacity) < capacity) return kInfeasible<W>;
    const double times = static_cast<double>(row.wanted) / static_cast<double>(wanted_);
    for (int attempt = 0; attempt < 4 && gap_ >= 0; ++attempt) {
      const W limit = static_cast<W>(least + static_cast<W>(gap_ * times));
      const int64_t count = take(i, v, row.begin, limit, capacity);
      if (count < capacity && 2 * count >= row.wanted) {
        gap_ *= std::clamp(static_cast<double>(row.wanted) / static_cast<double>(count), 0.9, 1.1);
        return limit;
      }
      if (count < capacity) {
        if (gap_ == 0) break;
        gap_ *= 1.7;
        continue;
      }
      if (limit == least || take(i, v, row.begin, least, row.wanted) == row.wanted) {
        gap_ = 0;  // as many ties as were wanted
        return least;
      }
      gap_ *= 0.6;
    }
    return choose_exactly(i, v, row, least, times);
  }

  W choose_exactly(int64_t i, const W* v, const Row& row, W least, double times) {
    const int64_t n = costs_.num_columns;
    const C* costs = dense_row(i);
    reduced_.resize(static_cast<size_t>(n));
    for (int64_t j = 0; j < n; ++j) reduced_[static_cast<size_t>(j)] = static_cast<W>(costs[j]) - v[j];
    std::nth_element(reduced_.begin(), reduced_.begin() + (row.wanted - 1), reduced_.end());
    const W last = reduced_[static_cast<size_t>(row.wanted - 1)];
    columns_.resize(static_cast<size_t>(row.begin));
    values_.resize(static_cast<size_t>(row.begin));
    if (last >= kInfeasible<W>) {  // fewer feasible pairs than wanted
      take(i, v, row.begin, largest_finite(), row.wanted);
      return kInfeasible<W>;
    }
    for (const bool equal : {false, true})
      for (int64_t j = 0; j < n && static_cast<int64_t>(columns_.size()) - row.begin < row.wanted; ++j) {
        const W reduced = static_cast<W>(costs[j]) - v[j];
        if (equal ? reduced != last : reduced >= last) continue;
        columns_.push_back(static_cast<int32_t>(j));
        values_.push_back(static_cast<W>(costs[j]));
      }
    gap_ = static_cast<double>(last - least) / times;
    return last;
  }

  void take_all_of_sparse() {
    const int64_t num_pairs = costs_.indptr[costs_.num_rows];
    columns_.assign(costs_.indices, costs_.indices + num_pairs);
    values_.assign(costs_.costs, costs_.costs + num_pairs);
    for (int64_t i = 0; i < costs_.num_rows; ++i) {
      Row& row = rows_[static_cast<size_t>(i)];
      row.begin = costs_.indptr[i];
      row.end = costs_.indptr[i + 1];
    }
  }

  const AssignmentCosts<C> costs_;
  const int64_t wanted_;
  std::vector<Row> rows_;
  std::vector<int32_t> columns_;
  std::vector<W> values_;
  std::vector<W> reduced_;
  double gap_ = -1;  // of `wanted_` candidates: how far the last lies above the least; negative: not known yet
  bool all_finite_ = true;
};

}  // namespace graphmill
