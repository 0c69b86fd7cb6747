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

}  // namespace

void draw(const Relation& relation, const Choice& choice, const DrawRule& rule, uint64_t key, int64_t* picked) {
  if (rule.replace && rule.fanout >= 0) {
    draw_again(relation, choice, key, picked);
  } else if (!relation.weights || choice.count == choice.available) {
    pick_edges(choice.start, choice.available, choice.count, key, picked);
  } else if (choice.count <= kMostCompared) {
    TakenList<int64_t> taken{picked, choice.start};
    ByWeight(relation.weights, choice, taken, picked).draw(key);
  } else {
    TakenMarks taken{std::vector<bool>(choice.available)};
    ByWeight(relation.weights, choice, taken, picked).draw(key);
  }
}

}  // namespace graphmill
