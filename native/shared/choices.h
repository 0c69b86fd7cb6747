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
template <class T>
GRAPHMILL_HD inline int64_t first_above(const T* values, int64_t count, T limit) {
  int64_t begin = 0;
  while (count > 0) {
    const int64_t half = count / 2;
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
GRAPHMILL_HD inline int64_t place_by_weight(const double* cumulative, int64_t count, double before, uint64_t key,
                                            uint64_t index) {
  const double share = before + uniform(key, index) * (cumulative[count - 1] - before);
  const int64_t place = first_above(cumulative, count, share);
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
// places are taken, as in floyd.h.
template <class Taken>
class ByWeight {
 public:
  GRAPHMILL_HD ByWeight(const double* weights, const Choice& choice, Taken& taken, int64_t* picked)
      : cumulative_(weights + choice.start), choice_(choice), taken_(taken), picked_(picked) {}

  GRAPHMILL_HD void draw(uint64_t key) {
    int64_t tries = kTriesPerPick * choice_.count;
    uint64_t index = 0;
    while (num_ < choice_.count && tries-- > 0) {
      const int64_t place = place_by_weight(cumulative_, choice_.available, choice_.weight_before, key, index++);
      if (!taken_.holds(static_cast<uint64_t>(place))) take(place);
    }
    for (index = kLate; num_ < choice_.count; ++index) take(place_of_the_rest(uniform(key, index)));
  }

 private:
  GRAPHMILL_HD void take(int64_t place) {
    taken_.add(static_cast<uint64_t>(place));
    picked_[num_++] = choice_.start + place;
  }
  GRAPHMILL_HD double weight(int64_t place) const {
    return cumulative_[place] - (place ? cumulative_[place - 1] : choice_.weight_before);
  }
  GRAPHMILL_HD int64_t place_of_the_rest(double share) const {
    double left = 0;
    for (int64_t i = 0; i < choice_.available; ++i)
      if (!taken_.holds(static_cast<uint64_t>(i))) left += weight(i);
    double sum = 0;
    int64_t last = 0;
    for (int64_t i = 0; i < choice_.available; ++i) {
      if (taken_.holds(static_cast<uint64_t>(i))) continue;
      last = i;
      sum += weight(i);
      if (sum > share * left) break;
    }
    return last;
  }

  const double* cumulative_;
  Choice choice_;
  Taken& taken_;
  int64_t* picked_;
  int64_t num_ = 0;
};

}  // namespace graphmill
