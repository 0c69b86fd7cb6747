// Picks without replacement: Floyd's algorithm (Bentley & Floyd 1987, "A sample of brilliance"), one draw a pick, no
// rejection. What is drawn and how it is known that a position is taken differ: a mask in a register, a list, a bitmap.
#pragma once
#include <cstdint>

#include "branchless.h"
#include "random.h"

namespace graphmill {

struct KeyedDraws {
  uint64_t key;
  GRAPHMILL_HD uint64_t operator()(int64_t index, uint64_t bound) const {
    return draw_below(key, static_cast<uint64_t>(index), bound);
  }
};

struct TakenMask {  // of positions below 64
  uint64_t bits = 0;
  GRAPHMILL_HD bool holds(uint64_t position) const { return bits >> position & 1; }
  GRAPHMILL_HD void add(uint64_t position) { bits |= uint64_t{1} << position; }
};

// Positions that are written down one after the other, from `first` on: what is written is compared.
template <class T>
struct TakenList {
  T* list;
  T first;
  int64_t count = 0;
  GRAPHMILL_HD bool holds(uint64_t position) const {
    const T wanted = first + static_cast<T>(position);
    bool taken = false;
    for (int64_t i = 0; i < count; ++i) taken |= list[i] == wanted;
    return taken;
  }
  GRAPHMILL_HD void add(uint64_t position) { list[count++] = first + static_cast<T>(position); }
};

// Write `count` of the `degree` positions from `start` on to `picked`, none twice. Floyd's choice for one draw: the
// draw itself, or, if it is taken already, the upper limit. draws(i, bound): the i-th, below a bound.
template <class Draws, class Taken>
GRAPHMILL_HD inline void floyd(int64_t start, int64_t degree, int64_t count, const Draws& draws, Taken& taken,
                               int64_t* picked) {
  for (int64_t i = 0, limit = degree - count; i < count; ++i, ++limit) {
    const uint64_t drawn = draws(i, static_cast<uint64_t>(limit) + 1);
    const uint64_t pick = choose(taken.holds(drawn), static_cast<uint64_t>(limit), drawn);
    taken.add(pick);
    picked[i] = start + static_cast<int64_t>(pick);
  }
}

}  // namespace graphmill
