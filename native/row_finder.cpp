#include "row_finder.h"

#include <stdexcept>
#include <string>

namespace graphmill {

namespace {

constexpr int64_t kAhead = 16;  // nodes whose storage id is fetched ahead of its use

}  // namespace

template <class Storage>
FoundCounts find_rows(const OwnRange<Storage>& range, const NodeTable* held, Window& window, const int64_t* nodes,
                      int64_t count, int64_t* rows) {
  for (int64_t i = 0; i < count; ++i)
    if (static_cast<uint64_t>(nodes[i]) >= static_cast<uint64_t>(range.num_nodes))
      throw std::invalid_argument("node " + std::to_string(nodes[i]) + " is not one of the " +
                                  std::to_string(range.num_nodes) + " nodes of the graph");
  const int64_t num_own = range.num_own(), first_of_window = num_own + (held ? held->size() : 0);
  FoundCounts found;
  for (int64_t i = 0; i < count; ++i) {
    if (i + 2 * kAhead < count) __builtin_prefetch(range.storage + nodes[i + 2 * kAhead]);
    if (held && i + kAhead < count) held->prefetch(nodes[i + kAhead]);
    const int64_t node = nodes[i], own = range.own_row(node);
    if (own >= 0) {
      rows[i] = own;
      ++found.own;
      continue;
    }
    const int64_t place = held ? held->find(node) : -1;
    if (place >= 0) {
      rows[i] = num_own + place;
      ++found.held;
      continue;
    }
    const int64_t of_window = window.table.find_or_append(node);
    if (of_window == static_cast<int64_t>(window.nodes.size())) window.nodes.push_back(node);
    rows[i] = first_of_window + of_window;
  }
  return found;
}

template FoundCounts find_rows(const OwnRange<int32_t>&, const NodeTable*, Window&, const int64_t*, int64_t, int64_t*);
template FoundCounts find_rows(const OwnRange<int64_t>&, const NodeTable*, Window&, const int64_t*, int64_t, int64_t*);

}  // namespace graphmill
