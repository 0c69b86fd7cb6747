// Which part each node of an undirected graph is in: streaming assignment, repair of balance, refinement, and what a
// partition costs. Several amounts are balanced at once (nodes, edges, training nodes): a part is overfull in an amount
// where its load is above the limit. One thread, in a fixed order: the result is a function of the arguments.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace graphmill {

// Both directions of every edge; self-loops are passed over. The arrays are the caller's.
template <class Index>
struct UndirectedGraph {
  const int64_t* indptr;
  const Index* indices;
  int64_t num_nodes;
};

// What every node weighs in each amount, and how much of it a part should hold at most.
struct Amounts {
  const uint32_t* weights;  // [num_nodes, count]
  const int64_t* limits;    // [count]
  int count;
};

template <class Index>
class PartsOfGraph {
 public:
  // `parts` [num_nodes]: of every node, < num_parts; -1: not assigned yet. Written to by what follows.
  PartsOfGraph(UndirectedGraph<Index> graph, Amounts amounts, int32_t* parts, int num_parts);

  // Linear deterministic greedy (Stanton and Kliot 2012): node after node to the part with most neighbours, each
  // counted (1 - load / limit) times. Nodes without neighbours are left out. Streamed again, it knows where all
  // neighbours were (restreaming: Nishimura and Ugander 2013). The order is that of `blocks` of `width` nodes each:
  // number b begins at node b * width.
  void stream(const int64_t* blocks, int64_t num_blocks, int64_t width);

  // Fill up with what is not assigned yet, in the order of `nodes`: each to the part that is emptiest by `amount`.
  void fill(const int64_t* nodes, int64_t count, int amount);

  // Move nodes out of overfull parts, those first that lose least cut for what they relieve, until no part is overfull
  // or no move makes it better. Returns how many were moved.
  int64_t rebalance();

  // Move each node to where most of its neighbours are, if that lessens the cut and makes no part overfull; at most
  // `num_passes` times over all nodes. Returns by how many edges the cut is smaller.
  int64_t refine(int num_passes);

 private:
  struct Move {
    int part;    // -1: none makes it better
    double key;  // what comes first is smaller
  };

  const uint32_t* weights_of(int64_t node) const { return amounts_.weights + node * amounts_.count; }
  int64_t load(int part, int amount) const { return loads_[static_cast<size_t>(part) * amounts_.count + amount]; }
  bool is_overfull(int part) const;
  bool any_overfull() const;
  bool has_room(int part, const uint32_t* weights) const;
  double fullness(int part, const uint32_t* weights) const;
  double excess(int part, const uint32_t* weights, int sign) const;
  int emptiest(int amount) const;
  void count_neighbours(int64_t node);
  void take_out(int64_t node);
  void put(int64_t node, int part);
  void place(int64_t node);
  Move best_relief(int64_t node);
  int best_gain(int64_t node, int64_t& gain);
  int64_t relieve_once();

  UndirectedGraph<Index> graph_;
  Amounts amounts_;
  int32_t* parts_;
  int num_parts_;
  std::vector<int64_t> loads_;       // [num_parts, count]
  std::vector<int64_t> neighbours_;  // [num_parts]: of the node that was counted last
  std::vector<int> touched_;         // parts that have any
};

// Of some rows of an undirected graph (`indptr` [num_rows + 1] from 0, the row's node is first_node + row): how many
// entries lead to another part, and, added to halos [num_parts], how many of these nodes each other part has as
// neighbours of its own.
template <class Index>
int64_t count_crossing(const int64_t* indptr, const Index* indices, int64_t num_rows, int64_t first_node,
                       const int32_t* parts, int num_parts, int64_t* halos);

}  // namespace graphmill
