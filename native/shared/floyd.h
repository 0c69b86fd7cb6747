// Picks without replacement: Floyd's algorithm (Bentley & Floyd 1987, "A sample of brilliance"), one draw a pick, no
// rejection. What is drawn and how it is known that a position is taken differ: a mask in a register, a list, a bitmap.
#pragma once
#include <cstdint>

#include "branchless.h"
#include "random.h"

namespace graphmill {

struct KeyedDraws {
  uint64_t key;
  GRAPHMILL_HD uint64_t operator()(int64_t index, int64_t bound) const {
    return draw_below(key, static_cast<uint64_t>(index), static_cast<uint64_t>(bound));
  }
};

struct NarrowDraws {  // the same, of bounds below 2^32
  uint64_t key;
  GRAPHMILL_HD uint32_t operator()(uint32_t index, uint32_t bound) const {
    return static_cast<uint32_t>((subkey(key, index) >> 32) * bound >> 32);
  }
};

struct TakenMask {  // of positions below 64
  uint64_t bits = 0;
  GRAPHMILL_HD bool holds(uint64_t position) const { return bits >> position & 1; }
  GRAPHMILL_HD void add(uint64_t position) { bits |= uint64_t{1} << position; }
};

// Positions that are kept in a list: what is in it is compared.
struct TakenList {
  uint32_t* list;
  int64_t count = 0;
  bool holds(uint64_t position) const {
    bool taken = false;
    for (int64_t i = 0; i < count; ++i) taken |= list[i] == position;
    return taken;
  }
  void add(uint64_t position) { list[count++] = static_cast<uint32_t>(position); }
};

// The same, of the picks themselves, which whoever picks writes.
template <class Count>
struct TakenPicks {
  const int64_t* picked;
  int64_t start;
  Count count = 0;
  GRAPHMILL_HD bool holds(uint64_t position) const {
    const int64_t wanted = start + static_cast<int64_t>(position);
    bool taken = false;
    GRAPHMILL_BY_FOUR
    for (Count i = 0; i < count; ++i) taken |= picked[i] == wanted;
    return taken;
  }
  GRAPHMILL_HD void add(uint64_t) { ++count; }
};

// Write `count` of the `degree` positions from `start` on to `picked`, none twice. Floyd's choice for one draw: the
// draw itself, or, if it is taken already, the upper limit. draws(i, bound): the i-th, below a bound. Count: of 64
// bits, or of 32 on a GPU, where registers are few.
template <class Count, class Draws, class Taken>
GRAPHMILL_HD inline void floyd(int64_t start, Count degree, Count count, const Draws& draws, Taken& taken,
                               int64_t* picked) {
  for (Count i = 0, limit = degree - count; i < count; ++i, ++limit) {
    const uint64_t drawn = draws(i, limit + 1);
    const uint64_t pick = choose(taken.holds(drawn), static_cast<uint64_t>(limit), drawn);
    taken.add(pick);
    picked[i] = start + static_cast<int64_t>(pick);
  }
}

}  // namespace graphmill
