// Subgraphs under construction: nodes get local ids as they are first met, hop by hop.
#pragma once
#include <cstdint>
#include <vector>

#include "buffer.h"
#include "draws.h"
#include "node_table.h"

namespace graphmill {

// Which place each node of one type has in a subgraph. A subgraph of a whole batch is looked up in an array as long as
// the graph; small ones, each around a seed of its own (`apart`), in a table.
class Places {
 public:
  void prepare(int64_t num_nodes, bool apart) {
    if (!apart && position_.empty()) position_.assign(num_nodes, 0);
  }
  int64_t find(int64_t node, bool apart) const {
    if (apart) return table_.find(node);
    return position_[node] >= base_ ? int64_t{position_[node]} - base_ : -1;
  }
  void put(int64_t node, int64_t place, bool apart) {
    if (apart) table_.find_or_append(node);
    else position_[node] = base_ + static_cast<uint32_t>(place);
  }
  // Give `count` nodes their places, in place of them; those that are new are appended to ids [num_ids].
  void relabel(int32_t* nodes, int64_t count, int64_t* ids, int64_t& num_ids, bool apart);
  void forget(int64_t num_placed, bool apart);

 private:
  std::vector<uint32_t> position_;  // base_ + place; what is below base_ is of an older subgraph
  uint32_t base_ = 1;
  NodeTable table_;
};

// Subgraphs one behind another. Local ids count from the first node of a subgraph.
class Growth {
 public:
  struct OfType {
    Buffer<int64_t> ids;
    int64_t count = 0, begin = 0;        // nodes of all subgraphs; where the one under construction begins
    int64_t hop_begin = 0, hop_end = 0;  // what the hop before found
    Places places;
  };
  struct OfRelation {
    Buffer<int32_t> sources, targets;  // local
    Buffer<int64_t> edges;             // positions in the relation's columns
    int64_t count = 0;
  };

  Growth(const std::vector<Relation>& relations, const std::vector<int64_t>& num_nodes)
      : columns_(relations), num_nodes_(num_nodes), types(num_nodes.size()), relations(relations.size()) {}

  void clear(bool apart);

  void begin_subgraph(const uint64_t* number, const int64_t* time);
  void place_seed(int type, int64_t node);
  // The rows of a hop are the nodes that the hop before found.
  void end_hop();
  void hop(size_t relation, const DrawRule& rule, uint64_t key, int num_threads);
  void note_edges();  // of a hop, of all relations
  // All edges of a relation between the nodes of the subgraph, in place of those that were drawn.
  void induce(size_t relation);
  void end_subgraph();

 private:
  const std::vector<Relation>& columns_;
  const std::vector<int64_t>& num_nodes_;

 public:
  std::vector<OfType> types;
  std::vector<OfRelation> relations;
  std::vector<int64_t> nodes_per_hop, edges_per_hop;  // [subgraphs, hops + 1, types], [subgraphs, hops, relations]

 private:
  void pick(size_t relation, const DrawRule& rule, uint64_t key, int64_t begin, int64_t end);
  void relabel(size_t relation, int64_t first, int64_t count);

  bool apart_ = false;
  const uint64_t* number_ = nullptr;  // of the subgraph, a coordinate of its draws; null: one for all seeds
  const int64_t* time_ = nullptr;
  std::vector<int64_t> edges_before_;  // by relation
  std::vector<Choice> choices_;
  std::vector<int64_t> ends_;
};

}  // namespace graphmill
