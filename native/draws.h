// Which in-edges of a row a hop takes: uniformly or by weight, with or without replacement, of those until a time.
#pragma once
#include <cstdint>

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

  int64_t source_of(int64_t edge) const { return narrow ? narrow[edge] : wide[edge]; }
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

// What a row offers. `time`: edges later than that do not exist yet; null: all do.
Choice offer(const Relation& relation, int64_t row, const DrawRule& rule, const int64_t* time);

// Write the positions that are taken to `picked` [choice.count].
void draw(const Relation& relation, const Choice& choice, const DrawRule& rule, uint64_t key, int64_t* picked);

// One of `count` values by weight: the place of a draw that is uniform on [before, cumulative[count - 1]).
int64_t place_by_weight(const double* cumulative, int64_t count, double before, uint64_t key, uint64_t index);

}  // namespace graphmill
