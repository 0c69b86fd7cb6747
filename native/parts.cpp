#include "parts.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

namespace graphmill {

namespace {

constexpr int kMostRounds = 10;       // of relief: what one round frees may let the next move more
constexpr double kTooLittle = 1e-12;  // relief that is rounding
constexpr double kStale = 1.05;       // a move that now costs so many times what it did is queued again
constexpr double kWorthAPass = 1e-3;  // share of the edges that a pass must have won for another one

}  // namespace

template <class Index>
PartsOfGraph<Index>::PartsOfGraph(UndirectedGraph<Index> graph, Amounts amounts, int32_t* parts, int num_parts)
    : graph_(graph),
      amounts_(amounts),
      parts_(parts),
      num_parts_(num_parts),
      loads_(static_cast<size_t>(num_parts) * amounts.count),
      neighbours_(num_parts) {
  for (int64_t node = 0; node < graph.num_nodes; ++node) {
    if (parts[node] < 0) continue;
    for (int a = 0; a < amounts.count; ++a) loads_[parts[node] * amounts.count + a] += weights_of(node)[a];
  }
}

template <class Index>
bool PartsOfGraph<Index>::is_overfull(int part) const {
  for (int a = 0; a < amounts_.count; ++a)
    if (load(part, a) > amounts_.limits[a]) return true;
  return false;
}

template <class Index>
bool PartsOfGraph<Index>::any_overfull() const {
  for (int part = 0; part < num_parts_; ++part)
    if (is_overfull(part)) return true;
  return false;
}

template <class Index>
bool PartsOfGraph<Index>::has_room(int part, const uint32_t* weights) const {
  for (int a = 0; a < amounts_.count; ++a)
    if (weights[a] > 0 && load(part, a) + weights[a] > amounts_.limits[a]) return false;
  return true;
}

// Of the fullest amount that the node adds to.
template <class Index>
double PartsOfGraph<Index>::fullness(int part, const uint32_t* weights) const {
  double most = 0;
  for (int a = 0; a < amounts_.count; ++a)
    if (weights[a] > 0) most = std::max(most, static_cast<double>(load(part, a) + weights[a]) / amounts_.limits[a]);
  return most;
}

// By how much the part is overfull, as a share of the limits, after the node has come (sign 1) or gone (-1); 0: as is.
template <class Index>
double PartsOfGraph<Index>::excess(int part, const uint32_t* weights, int sign) const {
  double sum = 0;
  for (int a = 0; a < amounts_.count; ++a) {
    const int64_t over = load(part, a) + sign * static_cast<int64_t>(weights[a]) - amounts_.limits[a];
    if (over > 0) sum += static_cast<double>(over) / amounts_.limits[a];
  }
  return sum;
}

template <class Index>
int PartsOfGraph<Index>::emptiest(int amount) const {
  int found = 0;
  for (int part = 1; part < num_parts_; ++part)
    if (load(part, amount) < load(found, amount)) found = part;
  return found;
}

template <class Index>
void PartsOfGraph<Index>::count_neighbours(int64_t node) {
  for (const int part : touched_) neighbours_[part] = 0;
  touched_.clear();
  for (int64_t at = graph_.indptr[node]; at < graph_.indptr[node + 1]; ++at) {
    const int64_t other = graph_.indices[at];
    const int part = parts_[other];
    if (other == node || part < 0) continue;
    if (neighbours_[part]++ == 0) touched_.push_back(part);
  }
}

template <class Index>
void PartsOfGraph<Index>::take_out(int64_t node) {
  if (parts_[node] < 0) return;
  for (int a = 0; a < amounts_.count; ++a) loads_[parts_[node] * amounts_.count + a] -= weights_of(node)[a];
  parts_[node] = -1;
}

template <class Index>
void PartsOfGraph<Index>::put(int64_t node, int part) {
  take_out(node);
  for (int a = 0; a < amounts_.count; ++a) loads_[part * amounts_.count + a] += weights_of(node)[a];
  parts_[node] = part;
}

template <class Index>
void PartsOfGraph<Index>::place(int64_t node) {
  take_out(node);
  count_neighbours(node);
  const uint32_t* weights = weights_of(node);
  int best = -1;
  double best_score = 0, best_fullness = 0;
  for (int part = 0; part < num_parts_; ++part) {
    const double full = fullness(part, weights), score = neighbours_[part] * (1 - full);
    const bool is_better = score > best_score || (score == best_score && full < best_fullness);
    if (best < 0 || is_better) best = part, best_score = score, best_fullness = full;
  }
  put(node, best);
}

template <class Index>
void PartsOfGraph<Index>::stream(const int64_t* blocks, int64_t num_blocks, int64_t width) {
  for (int64_t i = 0; i < num_blocks; ++i) {
    const int64_t stop = std::min((blocks[i] + 1) * width, graph_.num_nodes);
    for (int64_t node = blocks[i] * width; node < stop; ++node)
      if (graph_.indptr[node] < graph_.indptr[node + 1]) place(node);
  }
}

template <class Index>
void PartsOfGraph<Index>::fill(const int64_t* nodes, int64_t count, int amount) {
  using Level = std::pair<int64_t, int>;
  std::priority_queue<Level, std::vector<Level>, std::greater<Level>> levels;
  for (int part = 0; part < num_parts_; ++part) levels.emplace(load(part, amount), part);
  for (int64_t i = 0; i < count; ++i) {
    const int part = levels.top().second;
    levels.pop();
    put(nodes[i], part);
    levels.emplace(load(part, amount), part);
  }
}

// The move out of the node's part that costs least cut for the excess that it takes away.
template <class Index>
PartsOfGraph<Index>::Move PartsOfGraph<Index>::best_relief(int64_t node) {
  const int from = parts_[node];
  const uint32_t* weights = weights_of(node);
  const double relieved = excess(from, weights, 0) - excess(from, weights, -1);
  if (relieved <= 0) return {-1, 0};
  count_neighbours(node);
  Move best{-1, std::numeric_limits<double>::infinity()};
  double best_fullness = 0;
  for (int part = 0; part < num_parts_; ++part) {
    if (part == from) continue;
    const double relief = relieved - (excess(part, weights, 1) - excess(part, weights, 0));
    if (relief <= kTooLittle) continue;
    const auto loss = static_cast<double>(neighbours_[from] - neighbours_[part]);
    const double key = loss > 0 ? loss / relief : loss * relief, full = fullness(part, weights);
    if (key < best.key || (key == best.key && full < best_fullness)) best = {part, key}, best_fullness = full;
  }
  return best;
}

template <class Index>
int64_t PartsOfGraph<Index>::relieve_once() {
  using Candidate = std::pair<double, int64_t>;
  std::vector<Candidate> candidates;
  for (int64_t node = 0; node < graph_.num_nodes; ++node) {
    if (!is_overfull(parts_[node])) continue;
    const Move move = best_relief(node);
    if (move.part >= 0) candidates.emplace_back(move.key, node);
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<Candidate>> queue(std::greater<Candidate>(),
                                                                                        std::move(candidates));
  int64_t num_moved = 0;
  while (!queue.empty() && any_overfull()) {
    const auto [key, node] = queue.top();
    queue.pop();
    const Move move = best_relief(node);  // neighbours and loads have changed since it was queued
    if (move.part < 0) continue;
    if (move.key > std::max(key * kStale, key) && !queue.empty() && move.key > queue.top().first) {
      queue.emplace(move.key, node);
      continue;
    }
    put(node, move.part);
    ++num_moved;
  }
  return num_moved;
}

template <class Index>
int64_t PartsOfGraph<Index>::rebalance() {
  int64_t num_moved = 0;
  for (int round = 0; round < kMostRounds && any_overfull(); ++round) {
    const int64_t now = relieve_once();
    if (now == 0) break;
    num_moved += now;
  }
  return num_moved;
}

template <class Index>
int PartsOfGraph<Index>::best_gain(int64_t node, int64_t& gain) {
  count_neighbours(node);
  const int64_t own = neighbours_[parts_[node]];
  int best = -1;
  gain = 0;
  for (const int part : touched_) {
    const int64_t here = neighbours_[part] - own;
    if (part == parts_[node] || here <= gain || !has_room(part, weights_of(node))) continue;
    best = part, gain = here;
  }
  return best;
}

template <class Index>
int64_t PartsOfGraph<Index>::refine(int num_passes) {
  const int64_t num_pairs = graph_.indptr[graph_.num_nodes] / 2;
  const auto worth = static_cast<int64_t>(kWorthAPass * static_cast<double>(num_pairs));
  int64_t total = 0;
  for (int pass = 0; pass < num_passes; ++pass) {
    int64_t won = 0;
    for (int64_t node = 0; node < graph_.num_nodes; ++node) {
      int64_t gain;
      const int part = best_gain(node, gain);
      if (part >= 0) put(node, part), won += gain;
    }
    total += won;
    if (won <= worth) break;
  }
  return total;
}

template <class Index>
int64_t count_crossing(const int64_t* indptr, const Index* indices, int64_t num_rows, int64_t first_node,
                       const int32_t* parts, int num_parts, int64_t* halos) {
  std::vector<int64_t> seen_by(num_parts, -1);  // the last row that each part was seen from
  int64_t num_crossing = 0;
  for (int64_t row = 0; row < num_rows; ++row) {
    const int own = parts[first_node + row];
    for (int64_t at = indptr[row]; at < indptr[row + 1]; ++at) {
      const int part = parts[indices[at]];
      if (part == own) continue;
      ++num_crossing;
      if (seen_by[part] != row) seen_by[part] = row, ++halos[part];
    }
  }
  return num_crossing;
}

template class PartsOfGraph<int32_t>;
template class PartsOfGraph<int64_t>;
template int64_t count_crossing(const int64_t*, const int32_t*, int64_t, int64_t, const int32_t*, int, int64_t*);
template int64_t count_crossing(const int64_t*, const int64_t*, int64_t, int64_t, const int32_t*, int, int64_t*);

}  // namespace graphmill
