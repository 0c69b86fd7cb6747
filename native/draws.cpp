#include "draws.h"

#include <vector>

#include "picker.h"
#include "shared/floyd.h"

namespace graphmill {

namespace {

constexpr int64_t kMostCompared = 32;  // picks that are compared with each other; above, marks are cheaper

struct TakenMarks {
  std::vector<bool> marks;
  bool holds(uint64_t place) const { return marks[place]; }
  void add(uint64_t place) { marks[place] = true; }
};

template <class Taken>
void draw_by_weight(const Relation& relation, const Choice& choice, Taken taken, uint64_t key, int64_t* picked) {
  ByWeight<int64_t, Taken>(relation.weights + choice.start, choice.weight_before, choice.start, choice.available,
                           choice.count, taken, picked)
      .draw(key);
}

}  // namespace

void draw(const Relation& relation, const Choice& choice, const DrawRule& rule, uint64_t key, int64_t* picked) {
  if (rule.replace && rule.fanout >= 0) {
    draw_again(relation, choice, key, picked);
  } else if (!relation.weights || choice.count == choice.available) {
    pick_edges(choice.start, choice.available, choice.count, key, picked);
  } else if (choice.count <= kMostCompared) {
    draw_by_weight(relation, choice, TakenPicks<int64_t>{picked, choice.start}, key, picked);
  } else {
    draw_by_weight(relation, choice, TakenMarks{std::vector<bool>(choice.available)}, key, picked);
  }
}

}  // namespace graphmill
