// Phases of the assignment solver: what assignment.h describes, step by step.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "assignment_candidates.h"

namespace graphmill {

template <class C, class W>
class AssignmentSearch {
 public:
  AssignmentSearch(const AssignmentCosts<C>& costs, int64_t candidates, W* v, AssignmentWork* work)
      : costs_(costs),
        rows_(costs, candidates),
        v_(v),
        work_(work),
        column_of_(static_cast<size_t>(costs.num_rows), -1),
        row_of_(static_cast<size_t>(costs.num_columns), -1),
        cost_of_(static_cast<size_t>(costs.num_rows)),
        shift_(static_cast<size_t>(costs.num_rows)),
        distance_(static_cast<size_t>(costs.num_columns), kInfeasible<W>),
        row_before_(static_cast<size_t>(costs.num_columns)) {}

  int32_t column_of(int64_t i) const { return column_of_[static_cast<size_t>(i)]; }
  W cost_of(int64_t i) const { return cost_of_[static_cast<size_t>(i)]; }

  // assignment_match.h: whether all costs are finite, and whether no more than `most` rows are left over.
  bool match_columns();
  bool match_rows(int64_t most);

  // Pairs that are tight at v; -1: a row without one.
  void begin_with(const int64_t* columns) {
    for (int64_t i = 0; i < costs_.num_rows; ++i)
      if (columns[i] >= 0) {
        const auto column = static_cast<int32_t>(columns[i]);
        assign(static_cast<int32_t>(i), column, cost_at(i, column));
      }
    list_free_rows();
    work_->free_after_greedy = static_cast<int64_t>(free_.size());
  }

  void choose_candidates() {
    forget_matching();
    for (int64_t i = 0; i < costs_.num_rows; ++i) {
      rows_.choose(i, v_);
      match_tight(i);
    }
    work_->rows_chosen = costs_.num_rows;
    list_free_rows();
    work_->free_after_greedy = static_cast<int64_t>(free_.size());
  }

  bool all_finite() const { return rows_.all_finite(); }

  // Rows bid for their best column, each bid at least epsilon beyond the second best, until each has one. False: that
  // took more bids.
  bool auction(W epsilon, int64_t most_bids) {
    num_asked_ = num_outdated_ = 0;
    forget_matching();
    for (int64_t next = 0; next < costs_.num_rows; ++next)
      for (auto i = static_cast<int32_t>(next); i >= 0;) {
        if (most_bids-- == 0) return false;
        const Best best = best_of(i);
        if (best.column < 0) break;
        const int32_t loser = row_of_[static_cast<size_t>(best.column)];
        v_[best.column] -= (best.second < kInfeasible<W> ? best.second - best.least : W{}) + epsilon;
        assign(i, best.column, best.cost);
        i = loser;
        ++work_->bids;
      }
    return true;
  }

  // Match anew what is tight at the potentials of now.
  void rematch() {
    forget_matching();
    for (int64_t i = 0; i < costs_.num_rows; ++i) {
      refresh(i);
      match_tight(i);
    }
    list_free_rows();
    work_->free_after_auction = static_cast<int64_t>(free_.size());
  }

  // Augmenting row reduction: a free row takes its best column, whose price falls until the second best is as good.
  void reduce_rows(int64_t most_steps) {
    num_asked_ = num_outdated_ = 0;
    std::vector<int32_t> still_free;
    for (const int32_t first : free_)
      for (int32_t i = first; i >= 0;) {
        const Best best = most_steps-- > 0 ? best_of(i) : Best{};
        const int32_t owner = best.column < 0 ? -1 : row_of_[static_cast<size_t>(best.column)];
        // Where two are equally good, taking the column from its owner gains nothing.
        if (best.column < 0 || (owner >= 0 && !(best.second > best.least))) {
          still_free.push_back(i);
          break;
        }
        if (best.second < kInfeasible<W>) v_[best.column] -= best.second - best.least;
        assign(i, best.column, best.cost);
        i = owner;
        ++work_->bids;
      }
    free_.swap(still_free);
    work_->free_after_reduction = static_cast<int64_t>(free_.size());
  }

  // False: some row can have no column.
  bool augment_all() {
    for (const int32_t i : free_)
      if (!augment(i)) return false;
    free_.clear();
    return true;
  }

  // Typical distance of a row's second best pair from its best: the mean of the lower three quarters.
  double spacing() {
    std::vector<double> gaps;
    gaps.reserve(static_cast<size_t>(costs_.num_rows));
    for (int64_t i = 0; i < costs_.num_rows; ++i) {
      const Best best = best_of(static_cast<int32_t>(i));
      if (best.column >= 0 && best.second < kInfeasible<W>)
        gaps.push_back(static_cast<double>(best.second - best.least));
    }
    const size_t kept = gaps.size() - gaps.size() / 4;
    if (kept == 0) return 0;
    std::nth_element(gaps.begin(), gaps.begin() + static_cast<int64_t>(kept - 1), gaps.end());
    double sum = 0;
    for (size_t q = 0; q < kept; ++q) sum += gaps[q];
    return sum / static_cast<double>(kept);
  }

  // Where columns are left over whose potential is below 0: move it up, along the shortest path to a column that may be
  // left over in its place.
  void release_columns() {
    for (int64_t j = 0; j < costs_.num_columns; ++j)
      if (row_of_[static_cast<size_t>(j)] < 0 && v_[j] < 0) release(static_cast<int32_t>(j));
  }

 private:
  static constexpr int64_t kBidsOfCandidates = 2;

  struct Best {
    int32_t column = -1;
    W cost{}, least = kInfeasible<W>, second = kInfeasible<W>;
  };
  struct Reached {
    W distance;
    int32_t id;  // a column, or ~row: what the row left out of its candidates
    bool operator<(const Reached& other) const { return distance > other.distance; }
  };

  void assign(int32_t i, int32_t column, W cost) {
    const int32_t loser = row_of_[static_cast<size_t>(column)];
    if (loser >= 0) column_of_[static_cast<size_t>(loser)] = -1;
    row_of_[static_cast<size_t>(column)] = i;
    column_of_[static_cast<size_t>(i)] = column;
    cost_of_[static_cast<size_t>(i)] = cost;
  }

  void forget_matching() {
    std::fill(column_of_.begin(), column_of_.end(), -1);
    std::fill(row_of_.begin(), row_of_.end(), -1);
  }

  void list_free_rows() {
    free_.clear();
    for (int64_t i = 0; i < costs_.num_rows; ++i)
      if (column_of(i) < 0) free_.push_back(static_cast<int32_t>(i));
  }

  W least_of_all(int64_t i) const {
    bool ignored = true;
    return assignment_kernels<C, W>().least_reduced(rows_.dense_row(i), v_, costs_.num_columns, &ignored);
  }

  W least_of_candidates(int64_t i) const {
    const auto& row = rows_.row(i);
    if (row.is_whole) return least_of_all(i);
    W least = kInfeasible<W>;
    for (int64_t e = row.begin; e < row.end; ++e) least = std::min(least, rows_.costs()[e] - v_[rows_.columns()[e]]);
    return least;
  }

  void choose_anew(int64_t i) {
    ++(rows_.is_chosen(i) ? work_->rows_widened : work_->rows_chosen);
    rows_.choose(i, v_);
  }

  void refresh(int64_t i) {
    if (least_of_candidates(i) > rows_.row(i).beyond) choose_anew(i);
  }

  // assignment_match.h
  void match_tight(int64_t i);
  void match_tight_of_all(int64_t i);
  void match_tight_within(int64_t i, W least, int64_t begin, int64_t end);

  void make_room() {
    some_columns_.resize(static_cast<size_t>(costs_.num_columns) + 8);
    some_costs_.resize(static_cast<size_t>(costs_.num_columns) + 8);
  }

  Best best_of_all(int32_t i) const {
    Best best;
    const C* row = rows_.dense_row(i);
    best.column = static_cast<int32_t>(
        assignment_kernels<C, W>().two_least(row, v_, costs_.num_columns, &best.least, &best.second));
    if (best.column >= 0) best.cost = static_cast<W>(row[best.column]);
    return best;
  }

  Best best_of(int32_t i) {
    ++num_asked_;
    while (true) {
      const auto& row = rows_.row(i);
      if (row.is_whole) return best_of_all(i);
      Best best;
      for (int64_t e = row.begin; e < row.end; ++e) {
        const int32_t column = rows_.columns()[e];
        const W reduced = rows_.costs()[e] - v_[column];
        if (!(reduced < best.second)) continue;
        if (reduced < best.least) {
          best.second = best.least;
          best.least = reduced;
          best.column = column;
          best.cost = rows_.costs()[e];
        } else {
          best.second = reduced;
        }
      }
      if (best.least <= row.beyond) {
        best.second = std::min(best.second, row.beyond);
        return best;
      }
      // New candidates take a few sweeps. Where they would be outdated soon, the row is read for this once.
      ++num_outdated_;
      if (num_outdated_ * kBidsOfCandidates > num_asked_ + costs_.num_rows) return best_of_all(i);
      choose_anew(i);
    }
  }

  void reach(W distance, int32_t id) {
    heap_.push_back({distance, id});
    std::push_heap(heap_.begin(), heap_.end());
  }

  // Distances over the row's candidates. Its reduced costs less `shift` are distances from the root.
  void scan(int32_t i, W shift) {
    ++work_->row_scans;
    shift_[static_cast<size_t>(i)] = shift;
    const auto& row = rows_.row(i);
    const int32_t* columns = rows_.columns() + row.begin;
    const W* costs = rows_.costs() + row.begin;
    int64_t count = row.end - row.begin;
    if (row.is_whole) {
      make_room();
      count = assignment_kernels<C, W>().columns_closer(rows_.dense_row(i), v_, shift, distance_.data(), nearest_,
                                                        costs_.num_columns, some_columns_.data(), some_costs_.data());
      columns = some_columns_.data();
      costs = some_costs_.data();
    }
    for (int64_t e = 0; e < count; ++e) {
      const auto j = static_cast<size_t>(columns[e]);
      const W distance = costs[e] - v_[j] - shift;
      if (!(distance < distance_[j] && distance < nearest_)) continue;
      if (distance_[j] == kInfeasible<W>) touched_.push_back(columns[e]);
      distance_[j] = distance;
      row_before_[j] = i;
      if (row_of_[j] < 0) {
        nearest_ = distance;
        end_ = columns[e];
      } else {
        reach(distance, columns[e]);
      }
    }
    if (row.beyond < kInfeasible<W> && row.beyond - shift < nearest_) reach(row.beyond - shift, ~i);
  }

  bool augment(int32_t root) {
    heap_.clear();
    touched_.clear();
    done_.clear();
    nearest_ = kInfeasible<W>;
    end_ = -1;
    refresh(root);
    const W least = least_of_candidates(root);
    if (least >= kInfeasible<W>) return false;
    scan(root, least);
    while (!heap_.empty() && heap_.front().distance < nearest_) {
      const Reached next = heap_.front();
      std::pop_heap(heap_.begin(), heap_.end());
      heap_.pop_back();
      if (next.id < 0) {
        rows_.widen(~next.id, v_);
        ++work_->rows_widened;
        const int32_t row = ~next.id;
        scan(row, shift_[static_cast<size_t>(row)]);
      } else if (next.distance == distance_[static_cast<size_t>(next.id)]) {
        visit(next);
      }
    }
    if (end_ >= 0) {
      for (const Reached& column : done_) v_[column.id] += column.distance - nearest_;
      take_path(root);
    }
    for (const int32_t j : touched_) distance_[static_cast<size_t>(j)] = kInfeasible<W>;
    return end_ >= 0;
  }

  void visit(const Reached& column) {
    done_.push_back(column);
    // Below every distance: a rounding error must not reach it again.
    distance_[static_cast<size_t>(column.id)] = std::numeric_limits<W>::lowest();
    const int32_t i = row_of_[static_cast<size_t>(column.id)];
    if (!rows_.is_chosen(i)) choose_anew(i);
    scan(i, cost_of(i) - v_[column.id] - column.distance);
  }

  void take_path(int32_t root) {
    for (int32_t column = end_;;) {
      const int32_t i = row_before_[static_cast<size_t>(column)];
      const int32_t left = column_of_[static_cast<size_t>(i)];
      row_of_[static_cast<size_t>(column)] = i;
      column_of_[static_cast<size_t>(i)] = column;
      cost_of_[static_cast<size_t>(i)] = cost_at(i, column);
      if (i == root) return;
      column = left;
    }
  }

  W cost_at(int64_t i, int32_t column) const {
    if (costs_.indptr == nullptr) return static_cast<W>(costs_.costs[i * costs_.num_columns + column]);
    for (int64_t e = costs_.indptr[i]; e < costs_.indptr[i + 1]; ++e)
      if (costs_.indices[e] == column) return static_cast<W>(costs_.costs[e]);
    return kInfeasible<W>;
  }

  void release(int32_t column);

  const AssignmentCosts<C> costs_;
  CandidateRows<C, W> rows_;
  W* v_;
  AssignmentWork* work_;
  std::vector<int32_t> column_of_, row_of_;
  std::vector<W> cost_of_;  // of a row's pair
  std::vector<int32_t> free_;
  std::vector<W> shift_, distance_;
  std::vector<int32_t> row_before_, touched_;
  std::vector<Reached> heap_, done_;
  std::vector<int32_t> some_columns_;  // of a whole row
  std::vector<W> some_costs_;
  int64_t num_asked_ = 0, num_outdated_ = 0;  // of best_of, in this auction
  W nearest_{};
  int32_t end_ = -1;
};

}  // namespace graphmill
