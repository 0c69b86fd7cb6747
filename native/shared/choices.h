// Which in-edges of a row a hop takes: of those until a time, by weight, with or without replacement.
#pragma once
#include <cstdint>

#include "random.h"

namespace graphmill {

// The in-edges of one type of edge, in columns; the arrays are the caller's.
struct Relation {
  int source, target;     // types of nodes
  const int64_t* indptr;  // [nodes of the target's type + 1]
  const int32_t* narrow;  // [num_edges] sources, of 4 bytes
  const int64_t* wide;    // or of 8: one of the two is null
  const int64_t* order;   // [num_edges] the caller's number of each edge; null: as they stand
  const double* weights;  // [num_edges] cumulative in each row, or null
  const int64_t* times;   // [num_edges] ascending in each row, or null

  GRAPHMILL_HD int64_t source_of(int64_t edge) const { return narrow ? narrow[edge] : wide[edge]; }
};

struct DrawRule {
  int64_t fanout;  // at most this many of a row; < 0: all
  bool replace;    // draw `fanout` of a row with any, each time among all
  bool last;       // draw among the `fanout` latest
};

struct Choice {
  int64_t start, available, count;  // `count` positions of [start, start + available) are taken
  double weight_before;             // cumulative weight of the row's edges before `start`
};

constexpr int64_t kTriesPerPick = 8;           // draws that may meet a taken edge; then what is left is added up
constexpr uint64_t kLate = uint64_t{1} << 40;  // index of the first draw after the tries

// How many of ascending values come before the first that is above a limit.
template <class T, class Count>
GRAPHMILL_HD inline Count first_above(const T* values, Count count, T limit) {
  Count begin = 0;
  while (count > 0) {
    const Count half = count / 2;
    if (limit < values[begin + half]) {
      count = half;
    } else {
      begin += half + 1;
      count -= half + 1;
    }
  }
  return begin;
}

GRAPHMILL_HD inline double uniform(uint64_t key, uint64_t index) {  // on [0, 1), 53 bits
  return static_cast<double>(subkey(key, index) >> 11) * 0x1p-53;
}

// One of `count` values by weight: the place of a draw that is uniform on [before, cumulative[count - 1]).
template <class Count>
GRAPHMILL_HD inline Count place_by_weight(const double* cumulative, Count count, double before, uint64_t key,
                                          uint64_t index) {
  const double share = before + uniform(key, index) * (cumulative[count - 1] - before);
  const Count place = first_above(cumulative, count, share);
  return place < count ? place : count - 1;
}

// What a row offers. `time`: edges later than that do not exist yet; null: all do.
GRAPHMILL_HD inline Choice offer(const Relation& relation, int64_t row, const DrawRule& rule, const int64_t* time) {
  const int64_t first = relation.indptr[row];
  Choice choice{first, 0, 0, 0};
  int64_t end = relation.indptr[row + 1];
  if (time && relation.times) end = first + first_above(relation.times + first, end - first, *time);
  if (rule.last && rule.fanout >= 0 && end - rule.fanout > first) choice.start = end - rule.fanout;
  if (relation.weights && choice.start > first) choice.weight_before = relation.weights[choice.start - 1];
  choice.available = end - choice.start;
  const bool takes_all = rule.fanout < 0 || (!rule.replace && choice.available <= rule.fanout);
  choice.count = takes_all || choice.available == 0 ? choice.available : rule.fanout;
  return choice;
}

// With replacement: each time among all that the row offers, by weight where there are weights.
GRAPHMILL_HD inline void draw_again(const Relation& relation, const Choice& choice, uint64_t key, int64_t* picked) {
  const double* weights = relation.weights ? relation.weights + choice.start : nullptr;
  for (int64_t i = 0; i < choice.count; ++i) {
    const auto index = static_cast<uint64_t>(i);
    picked[i] = choice.start +
                (weights ? place_by_weight(weights, choice.available, choice.weight_before, key, index)
                         : static_cast<int64_t>(draw_below(key, index, static_cast<uint64_t>(choice.available))));
  }
}

// Without replacement, by weight: one by one, each in proportion to its weight among those not taken yet, which is what
// rejection gives; where a few heavy edges hold nearly all weight, the rest is added up instead. `Taken` knows which
// places are taken, as in floyd.h; Count as there.
template <class Count, class Taken>
class ByWeight {
 public:
  // `weights`: of the `available` edges from `start` on, of which `count` are taken; `before` as in Choice.
  GRAPHMILL_HD ByWeight(const double* weights, double before, int64_t start, Count available, Count count, Taken& taken,
                        int64_t* picked)
      : cumulative_(weights),
        before_(before),
        start_(start),
        available_(available),
        count_(count),
        taken_(taken),
        picked_(picked) {}

  GRAPHMILL_HD void draw(uint64_t key) {
    const Count tries = static_cast<Count>(kTriesPerPick) * count_;
    for (Count index = 0; num_ < count_ && index < tries; ++index) {
      const Count place = place_by_weight(cumulative_, available_, before_, key, static_cast<uint64_t>(index));
      if (!taken_.holds(static_cast<uint64_t>(place))) take(place);
    }
    for (uint64_t index = kLate; num_ < count_; ++index) take(place_of_the_rest(uniform(key, index)));
  }

 private:
  GRAPHMILL_HD void take(Count place) {
    taken_.add(static_cast<uint64_t>(place));
    picked_[num_++] = start_ + place;
  }
  GRAPHMILL_HD double weight(Count place) const {
    return cumulative_[place] - (place ? cumulative_[place - 1] : before_);
  }
  GRAPHMILL_HD Count place_of_the_rest(double share) const {
    double left = 0;
    for (Count i = 0; i < available_; ++i)
      if (!taken_.holds(static_cast<uint64_t>(i))) left += weight(i);
    double sum = 0;
    Count last = 0;
    for (Count i = 0; i < available_; ++i) {
      if (taken_.holds(static_cast<uint64_t>(i))) continue;
      last = i;
      sum += weight(i);
      if (sum > share * left) break;
    }
    return last;
  }

  const double* cumulative_;
  double before_;
  int64_t start_;
  Count available_, count_;
  Taken& taken_;
  int64_t* picked_;
  Count num_ = 0;
};

}  // namespace graphmill
