// Kernels of the irregular work with integers: each is a thin wrapper over a body of ../shared, one thread for a row,
// an edge or a pair. See README.md for the layout of the data and how results equal the CPU's.
//
// How many rows or edges there are is read from device memory (`span`: from, to), so that the host never waits for it;
// `room` is how many there may be, which is what threads are started for.
#ifndef GRAPHMILL_SHIM
#include <cuda_runtime.h>
#endif

#include "batch.h"
#include "rows.h"
#include "shared/choices.h"
#include "shared/floyd.h"
#include "shared/node_slots.h"
#include "shared/pairs.h"

// Six blocks of 256 threads on a multiprocessor: at most 40 registers a thread, three quarters of all warps.
#define GRAPHMILL_KERNEL extern "C" __global__ void __launch_bounds__(256, 6)

using namespace graphmill;

// ---- picks ----------------------------------------------------------------------------------------------------------

// starts, available and counts [room]: what each row offers and gives; rows past the span give nothing.
GRAPHMILL_KERNEL graphmill_offer(Relation relation, DrawRule rule, HopRows rows, Spans spans, int64_t* counts) {
  const int64_t i = this_thread();
  if (i >= rows.room) return;
  counts[i] = 0;
  if (i >= rows.count()) return;
  const int64_t node = rows.span[0] + i;
  const Choice choice = offer(relation, rows.place(node), rule, rows.time(node));
  spans.starts[i] = choice.start;
  spans.available[i] = choice.available;
  counts[i] = choice.count;
}

// Without replacement, all alike: positions of edges to `edges`, at ends[i] for row i.
GRAPHMILL_KERNEL graphmill_draw_uniform(HopRows rows, Spans spans, uint64_t key, int64_t* edges) {
  const int64_t i = this_thread();
  if (i >= rows.room) return;
  const auto count = static_cast<uint32_t>(spans.ends[i + 1] - spans.ends[i]);
  if (count == 0) return;
  const int64_t start = spans.starts[i];
  const auto degree = static_cast<uint32_t>(spans.available[i]);
  int64_t* picked = edges + spans.ends[i];
  const NarrowDraws draws{rows.key(key, i)};
  if (count == degree) {
    for (uint32_t k = 0; k < count; ++k) picked[k] = start + k;
  } else if (degree <= 64) {
    TakenMask taken;
    floyd(start, degree, count, draws, taken, picked);
  } else {
    TakenPicks<uint32_t> taken{picked, start};
    floyd(start, degree, count, draws, taken, picked);
  }
}

// The same by a warp for each row: where many are picked, each is compared with as many.
GRAPHMILL_KERNEL graphmill_draw_uniform_wide(HopRows rows, Spans spans, uint64_t key, int64_t* edges) {
  const int64_t i = this_thread() / 32;
  const uint32_t lane = threadIdx.x % 32;
  if (i >= rows.room) return;
  const auto count = static_cast<uint32_t>(spans.ends[i + 1] - spans.ends[i]);
  if (count == 0) return;
  const int64_t start = spans.starts[i];
  const auto degree = static_cast<uint32_t>(spans.available[i]);
  int64_t* picked = edges + spans.ends[i];
  if (count == degree) {
    for (uint32_t k = lane; k < count; k += 32) picked[k] = start + k;
  } else {
    TakenAcrossWarp taken{picked, start, 0, lane};
    floyd(start, degree, count, NarrowDraws{rows.key(key, i)}, taken, picked);
  }
}

// With replacement, by weight where the relation has weights.
GRAPHMILL_KERNEL graphmill_draw_again(Relation relation, HopRows rows, Spans spans, uint64_t key, int64_t* edges) {
  const int64_t i = this_thread();
  if (i >= rows.room) return;
  const int64_t count = spans.ends[i + 1] - spans.ends[i], start = spans.starts[i];
  if (count == 0) return;
  Choice choice{start, spans.available[i], count, 0};
  if (relation.weights && start > relation.indptr[rows.place(rows.span[0] + i)])
    choice.weight_before = relation.weights[start - 1];
  draw_again(relation, choice, rows.key(key, i), edges + spans.ends[i]);
}

// Without replacement, by weight.
GRAPHMILL_KERNEL graphmill_draw_weighted(Relation relation, HopRows rows, Spans spans, uint64_t key, int64_t* edges) {
  const int64_t i = this_thread();
  if (i >= rows.room) return;
  const auto count = static_cast<int32_t>(spans.ends[i + 1] - spans.ends[i]);
  if (count == 0) return;
  const auto available = static_cast<int32_t>(spans.available[i]);
  const int64_t start = spans.starts[i];
  int64_t* picked = edges + spans.ends[i];
  if (count == available) {
    for (int32_t k = 0; k < count; ++k) picked[k] = start + k;
    return;
  }
  const bool is_cut = start > relation.indptr[rows.place(rows.span[0] + i)];
  TakenPicks<int32_t> taken{picked, start};
  ByWeight<int32_t, TakenPicks<int32_t>>(relation.weights + start, is_cut ? relation.weights[start - 1] : 0, start,
                                         available, count, taken, picked)
      .draw(rows.key(key, i));
}

// The rows [room of edges] of the batch whose edges they are, a thread an edge, from edge edge_span[0] on.
GRAPHMILL_KERNEL graphmill_targets(HopRows rows, const int64_t* ends, const int64_t* edge_span, int64_t room,
                                   int32_t* targets) {
  const int64_t edge = edge_span[0] + this_thread();
  if (this_thread() >= room || edge >= edge_span[1]) return;
  targets[edge] = static_cast<int32_t>(rows.span[0] + first_above(ends, rows.room + 1, edge) - 1);
}

// All edges of rows, a thread an edge: no row waits for its hub.
GRAPHMILL_KERNEL graphmill_take_all(HopRows rows, Spans spans, const int32_t* targets, const int64_t* edge_span,
                                    int64_t room, int64_t* edges) {
  const int64_t edge = edge_span[0] + this_thread();
  if (this_thread() >= room || edge >= edge_span[1]) return;
  const int64_t i = targets[edge] - rows.span[0];
  edges[edge] = spans.starts[i] + edge - spans.ends[i];
}

// ---- relabelling as first met ---------------------------------------------------------------------------------------

// Seeds get the numbers of their places; of one that stands twice the first counts.
GRAPHMILL_KERNEL graphmill_place_seeds(Places places, const int64_t* seeds, const int32_t* subgraphs, int64_t first,
                                       int64_t count) {
  const int64_t i = this_thread();
  if (i >= count) return;
  const int64_t slot = places.keys ? claim(places, places.key(subgraphs[i], seeds[i])) : seeds[i];
  meet(places, slot, static_cast<uint32_t>(first + i));
}

// The source of each edge of a hop, its slot, and the least number of an edge that meets it.
GRAPHMILL_KERNEL graphmill_meet(Relation relation, Places places, const int64_t* edges, const int32_t* targets,
                                const int32_t* subgraphs, const int64_t* edge_span, const int64_t* num_nodes,
                                int64_t room, int32_t* sources, int32_t* slots) {
  const int64_t i = this_thread(), edge = edge_span[0] + i;
  if (i >= room || edge >= edge_span[1]) return;
  const int64_t source = relation.source_of(edges[edge]);
  sources[i] = static_cast<int32_t>(source);
  const int64_t slot = places.keys ? claim(places, places.key(subgraphs[targets[edge]], source)) : source;
  slots[i] = static_cast<int32_t>(slot);
  meet(places, slot, static_cast<uint32_t>(*num_nodes + i));
}

// is_first [room]: 1 for an edge that is the first to meet its source, 0 for all others and past the span.
GRAPHMILL_KERNEL graphmill_is_first(Places places, const int32_t* slots, const int64_t* edge_span,
                                    const int64_t* num_nodes, int64_t room, int32_t* is_first) {
  const int64_t i = this_thread();
  if (i >= room) return;
  const bool is_edge = edge_span[0] + i < edge_span[1];
  is_first[i] = is_edge && places.position[slots[i]] == static_cast<uint32_t>(*num_nodes + i);
}

// New nodes get the next numbers, in the order of the edges that met them: `ranks` is the sum of is_first up to each.
// They are of the subgraphs of the nodes that their edges lead to.
GRAPHMILL_KERNEL graphmill_settle(Places places, const int32_t* sources, const int32_t* slots, const int32_t* is_first,
                                  const int32_t* ranks, const int32_t* targets, const int64_t* edge_span,
                                  const int64_t* num_nodes, int64_t room, int64_t* nodes, int32_t* subgraphs,
                                  const int32_t* target_subgraphs) {
  const int64_t i = this_thread();
  if (i >= room || !is_first[i]) return;
  const int64_t local = *num_nodes + ranks[i] - 1;
  nodes[local] = sources[i];
  if (subgraphs) subgraphs[local] = target_subgraphs[targets[edge_span[0] + i]];
  places.position[slots[i]] = static_cast<uint32_t>(local);
}

// Nodes of a span that were put into another order get the numbers of their places in it.
GRAPHMILL_KERNEL graphmill_renumber(Places places, const int64_t* nodes, const int32_t* subgraphs, const int64_t* span,
                                    int64_t room) {
  const int64_t i = this_thread(), local = span[0] + i;
  if (i >= room || local >= span[1]) return;
  places.position[claim(places, places.key(subgraphs[local], nodes[local]))] = static_cast<uint32_t>(local);
}

// The number of each edge's source.
GRAPHMILL_KERNEL graphmill_label(Places places, const int32_t* slots, const int64_t* edge_span, int64_t room,
                                 int32_t* indices) {
  const int64_t i = this_thread(), edge = edge_span[0] + i;
  if (i < room && edge < edge_span[1]) indices[edge] = static_cast<int32_t>(places.position[slots[i]]);
}

// Before the next batch: no node is known.
GRAPHMILL_KERNEL graphmill_forget(Places places, const int64_t* nodes, const int64_t* num_nodes, int64_t room) {
  const int64_t i = this_thread();
  if (i < room && i < *num_nodes) places.position[nodes[i]] = kUnknown;
}

// out[*at + i] = values[i], of as many as there are.
GRAPHMILL_KERNEL graphmill_append(const int64_t* values, const int64_t* span, const int64_t* at, int64_t room,
                                  int64_t* out) {
  const int64_t i = this_thread();
  if (i < room && i < span[1] - span[0]) out[*at + i] = values[i];
}

// ---- subgraphs with all their edges ---------------------------------------------------------------------------------

// How many in-edges of each row come from nodes of its subgraph; with `ends`, they are written instead. Row i is the
// node order[i] of the batch; `sources` are numbered by their own type's places.
GRAPHMILL_KERNEL graphmill_induce(Relation relation, Places places, HopRows rows, const int64_t* order,
                                  const int64_t* ends, int64_t* counts, int32_t* sources, int32_t* targets,
                                  int64_t* edges) {
  const int64_t i = this_thread();
  if (i >= rows.room) return;
  const int64_t node = order[i];
  const Choice choice = offer(relation, rows.place(node), {-1, false, false}, rows.time(node));
  int64_t at = ends ? ends[i] : 0;
  for (int64_t edge = choice.start; edge < choice.start + choice.count; ++edge) {
    const uint32_t source = find_place(places, rows.subgraphs ? rows.subgraphs[node] : 0, relation.source_of(edge));
    if (source == kUnknown) continue;
    if (ends) {
      sources[at] = static_cast<int32_t>(source);
      targets[at] = static_cast<int32_t>(node);
      edges[at] = edge;
    }
    ++at;
  }
  if (!ends) counts[i] = at;
}

// ---- negatives ------------------------------------------------------------------------------------------------------

namespace {

__device__ inline bool is_edge(const KnownEdges& known, const Pair& pair) {
  const int64_t first = known.indptr[pair.target];
  const int64_t below =
      first_above(known.sources + first, known.indptr[pair.target + 1] - first, static_cast<int32_t>(pair.source - 1));
  return is_pair(known, pair, first + below);
}

}  // namespace

// `given`, `times` and `numbers` of `wanted` as on the CPU; known.indptr null: any pair will do.
GRAPHMILL_KERNEL graphmill_draw_negatives(KnownEdges known, Candidates sources, Candidates targets, Negatives wanted,
                                          int64_t* source_out, int64_t* target_out) {
  const int64_t place = this_thread();
  if (place >= wanted.count) return;
  const PairDraws draws{sources, targets, wanted};
  for (int attempt = 0; attempt < wanted.tries; ++attempt) {
    const Pair pair = draws.draw(place, attempt);
    const bool is_right = draws.exist(pair) && !(known.indptr && is_edge(known, pair));
    source_out[place] = pair.source;
    target_out[place] = is_right ? pair.target : -1;
    if (is_right) return;
  }
}

GRAPHMILL_KERNEL graphmill_find_edges(KnownEdges known, const int64_t* sources, const int64_t* targets,
                                      const int64_t* at, int64_t count, bool* found) {
  const int64_t i = this_thread();
  if (i < count) found[i] = is_edge(known, {sources[i], targets[i], at ? at + i : nullptr});
}

// ---- look-ups -------------------------------------------------------------------------------------------------------

// Put distinct nodes into an empty table: their places are their numbers in the list.
GRAPHMILL_KERNEL graphmill_fill_table(const int64_t* nodes, int64_t count, int64_t* keys, int32_t* places,
                                      uint64_t mask, int64_t shift) {
  const int64_t i = this_thread();
  if (i >= count) return;
  const Places table{nullptr, keys, 0, mask, static_cast<int>(shift)};
  places[claim(table, nodes[i])] = static_cast<int32_t>(i);
}

// The row of each node: among the rank's own, then those that it holds, -1 for all others. A null `storage`: no own
// rows.
GRAPHMILL_KERNEL graphmill_find_rows(OwnRange<int32_t> narrow, OwnRange<int64_t> wide, NodeSlots held,
                                     const int64_t* nodes, const int64_t* span, int64_t room, int64_t* rows) {
  const int64_t i = this_thread();
  if (i >= room || i >= span[1] - span[0]) return;
  const int64_t node = nodes[span[0] + i];
  const int64_t own = narrow.storage ? narrow.own_row(node) : wide.storage ? wide.own_row(node) : -1;
  const int64_t place = own < 0 && held.nodes ? held.find(node) : -1;
  rows[i] = own >= 0 ? own : place >= 0 ? narrow.num_own() + place : -1;
}

// ---- rows -----------------------------------------------------------------------------------------------------------

// out [room, num_columns]: rows in float32; zeros past the span and for row -1. _4: four columns at a time, for tables
// whose rows begin at multiples of 16 bytes (8 of shorter numbers).
#define GRAPHMILL_GATHER(NAME, TYPE, WIDTH)                                                                        \
  GRAPHMILL_KERNEL NAME(Tables tables, const int64_t* rows, const int64_t* span, int64_t room, int64_t lanes_log2, \
                        float* out) {                                                                              \
    gather<TYPE, WIDTH>(tables, rows, span, room, lanes_log2, out);                                                \
  }
GRAPHMILL_GATHER(graphmill_gather_float32, float, 1)
GRAPHMILL_GATHER(graphmill_gather_float32_4, float, 4)
GRAPHMILL_GATHER(graphmill_gather_bfloat16, Bfloat16, 1)
GRAPHMILL_GATHER(graphmill_gather_bfloat16_4, Bfloat16, 4)
GRAPHMILL_GATHER(graphmill_gather_float16, Float16, 1)
GRAPHMILL_GATHER(graphmill_gather_float16_4, Float16, 4)
