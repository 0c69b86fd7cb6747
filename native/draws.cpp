#include "draws.h"

#include <algorithm>
#include <vector>

#include "picker.h"
#include "random.h"

namespace graphmill {

namespace {

constexpr int64_t kMostCompared = 32;          // picks that are compared with each other; above, marks are cheaper
constexpr int64_t kTriesPerPick = 8;           // draws that may meet a taken edge; then what is left is added up
constexpr uint64_t kLate = uint64_t{1} << 40;  // index of the first draw after the tries

double uniform(uint64_t key, uint64_t index) {  // on [0, 1), 53 bits
  return static_cast<double>(subkey(key, index) >> 11) * 0x1p-53;
}

// One by one, each in proportion to its weight among those not taken yet, which is what rejection gives; where a few
// heavy edges hold nearly all weight, the rest is added up instead.
class WithoutReplacement {
 public:
  WithoutReplacement(const double* cumulative, const Choice& choice, int64_t* picked)
      : cumulative_(cumulative + choice.start), choice_(choice), picked_(picked) {
    if (choice.count > kMostCompared) taken_.assign(choice.available, false);
  }

  void draw(uint64_t key) {
    int64_t tries = kTriesPerPick * choice_.count;
    uint64_t index = 0;
    while (num_ < choice_.count && tries-- > 0) {
      const int64_t place = place_by_weight(cumulative_, choice_.available, choice_.weight_before, key, index++);
      if (!is_taken(place)) take(place);
    }
    for (index = kLate; num_ < choice_.count; ++index) take(place_of_the_rest(uniform(key, index)));
  }

 private:
  bool is_taken(int64_t place) const {
    if (!taken_.empty()) return taken_[place];
    return std::find(picked_, picked_ + num_, choice_.start + place) != picked_ + num_;
  }
  void take(int64_t place) {
    if (!taken_.empty()) taken_[place] = true;
    picked_[num_++] = choice_.start + place;
  }
  double weight(int64_t place) const {
    return cumulative_[place] - (place ? cumulative_[place - 1] : choice_.weight_before);
  }

  int64_t place_of_the_rest(double share) const {
    double left = 0;
    for (int64_t i = 0; i < choice_.available; ++i)
      if (!is_taken(i)) left += weight(i);
    double sum = 0;
    int64_t last = 0;
    for (int64_t i = 0; i < choice_.available; ++i) {
      if (is_taken(i)) continue;
      last = i;
      sum += weight(i);
      if (sum > share * left) break;
    }
    return last;
  }

  const double* cumulative_;
  Choice choice_;
  int64_t* picked_;
  int64_t num_ = 0;
  std::vector<bool> taken_;
};

}  // namespace

int64_t place_by_weight(const double* cumulative, int64_t count, double before, uint64_t key, uint64_t index) {
  const double share = before + uniform(key, index) * (cumulative[count - 1] - before);
  return std::min<int64_t>(std::upper_bound(cumulative, cumulative + count, share) - cumulative, count - 1);
}

Choice offer(const Relation& relation, int64_t row, const DrawRule& rule, const int64_t* time) {
  const int64_t first = relation.indptr[row];
  Choice choice{first, 0, 0, 0};
  int64_t end = relation.indptr[row + 1];
  if (time && relation.times)
    end = std::upper_bound(relation.times + choice.start, relation.times + end, *time) - relation.times;
  if (rule.last && rule.fanout >= 0) choice.start = std::max(choice.start, end - rule.fanout);
  if (relation.weights && choice.start > first) choice.weight_before = relation.weights[choice.start - 1];
  choice.available = end - choice.start;
  const bool takes_all = rule.fanout < 0 || (!rule.replace && choice.available <= rule.fanout);
  choice.count = takes_all || choice.available == 0 ? choice.available : rule.fanout;
  return choice;
}

void draw(const Relation& relation, const Choice& choice, const DrawRule& rule, uint64_t key, int64_t* picked) {
  if (rule.replace && rule.fanout >= 0) {
    const double* weights = relation.weights ? relation.weights + choice.start : nullptr;
    for (int64_t i = 0; i < choice.count; ++i)
      picked[i] =
          choice.start + (weights ? place_by_weight(weights, choice.available, choice.weight_before, key, i)
                                  : static_cast<int64_t>(draw_below(key, static_cast<uint64_t>(i), choice.available)));
  } else if (relation.weights && choice.count < choice.available) {
    WithoutReplacement(relation.weights, choice, picked).draw(key);
  } else {
    pick_edges(choice.start, choice.available, choice.count, key, picked);
  }
}

}  // namespace graphmill
