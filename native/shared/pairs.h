// Pairs of nodes that are no edges: how one is drawn, and when a place in a row of known edges is the pair.
#pragma once
#include <cstdint>

#include "choices.h"
#include "random.h"

namespace graphmill {

// In columns whose rows ascend by source, the times of edges between the same two nodes ascending.
struct KnownEdges {
  const int64_t* indptr;   // [num_targets + 1]
  const int32_t* sources;  // [num_edges]
  const int64_t* times;    // [num_edges], or null: edges of all times count
};

struct Candidates {  // for one end of a negative
  int64_t count;
  const double* weights;  // cumulative [count], or null: uniform
  const int64_t* times;   // [count] since when each node exists, or null
};

struct Negatives {
  int64_t count;
  const int64_t* given;    // [count] sources, or null: they are drawn too
  const int64_t* times;    // [count] what exists then is meant, or null: what exists at any time
  const int64_t* numbers;  // [count] what draws are keyed by beside `key`, or null: their places in the list
  uint64_t key;
  int tries;  // draws for each; where all failed, the target is -1
};

struct Pair {
  int64_t source, target;
  const int64_t* time;  // null: any
};

GRAPHMILL_HD inline int64_t draw_node(const Candidates& from, uint64_t key, uint64_t index) {
  if (from.weights) return place_by_weight(from.weights, from.count, 0, key, index);
  return static_cast<int64_t>(draw_below(key, index, static_cast<uint64_t>(from.count)));
}

GRAPHMILL_HD inline bool exists(const Candidates& from, int64_t node, const int64_t* time) {
  return !from.times || !time || from.times[node] <= *time;
}

// Draws of one place in the list.
struct PairDraws {
  const Candidates& sources;
  const Candidates& targets;
  const Negatives& wanted;

  GRAPHMILL_HD Pair draw(int64_t place, int attempt) const {
    const int64_t number = wanted.numbers ? wanted.numbers[place] : place;
    const uint64_t key = subkey(wanted.key, static_cast<uint64_t>(number));
    const auto index = 2 * static_cast<uint64_t>(attempt);
    const int64_t target = draw_node(targets, key, index);
    const int64_t source = wanted.given ? wanted.given[place] : draw_node(sources, key, index + 1);
    return {source, target, wanted.times ? wanted.times + place : nullptr};
  }
  GRAPHMILL_HD bool exist(const Pair& pair) const {
    return exists(sources, pair.source, pair.time) && exists(targets, pair.target, pair.time);
  }
};

// Whether the edge at the first place of the target's row that is not below the source, `at`, is the pair.
GRAPHMILL_HD inline bool is_pair(const KnownEdges& known, const Pair& pair, int64_t at) {
  const int64_t end = known.indptr[pair.target + 1];
  const auto source = static_cast<int32_t>(pair.source);
  return at < end && known.sources[at] == source && (!known.times || !pair.time || known.times[at] <= *pair.time);
}

}  // namespace graphmill
