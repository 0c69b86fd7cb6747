// Sampling over nodes and edges of several types: around all seeds of a batch together, or a subgraph of its own around
// each. A graph without types has one of each.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "draws.h"
#include "growth.h"

namespace graphmill {

struct TypedSeeds {
  int type;
  const int64_t* nodes;  // [count]; a node may stand twice
  int64_t count;
  const int64_t* times;  // [count], or null; only where each has a subgraph of its own
};

struct SampleRule {
  size_t num_hops = 0;
  std::vector<std::vector<int64_t>> fanouts;  // of each relation, hop by hop
  bool replace = false, last = false;
  bool disjoint = false;  // a subgraph of its own around each seed
  bool induced = false;   // with all edges between the nodes of a subgraph
  uint64_t key = 0;
};

template <class T>
struct Line {  // an array that is handed over
  std::unique_ptr<T[]> values;
  int64_t count = 0;
  Line() = default;
  explicit Line(int64_t size) : values(new T[size]), count(size) {}
};

struct TypedSubgraph {
  struct Nodes {
    Line<int64_t> ids, subgraph;   // [num_nodes]; the number of the seed around which it was found, if disjoint
    std::vector<int64_t> per_hop;  // seeds first
  };
  struct Edges {
    Line<int64_t> ends, ids;       // [2, num_edges] local: sources, then targets; [num_edges] the caller's numbers
    std::vector<int64_t> per_hop;  // empty where induced
  };
  std::vector<Nodes> nodes;  // by type
  std::vector<Edges> edges;  // by relation

  TypedSubgraph() = default;
  TypedSubgraph(const TypedSubgraph&) = delete;  // its vectors would have it that they can be copied
  TypedSubgraph& operator=(const TypedSubgraph&) = delete;
};

class TypedSampler {
 public:
  // The arrays of the relations are the caller's, and right.
  TypedSampler(std::vector<int64_t> num_nodes, std::vector<Relation> relations)
      : num_nodes_(std::move(num_nodes)), relations_(std::move(relations)) {}

  int64_t num_nodes(int type) const { return num_nodes_[type]; }
  size_t num_types() const { return num_nodes_.size(); }
  size_t num_relations() const { return relations_.size(); }

  // Seeds of all types are numbered through in their order: that is the number of their subgraphs.
  // Throws std::invalid_argument on a seed that is no node.
  std::shared_ptr<TypedSubgraph> sample(const std::vector<TypedSeeds>& seeds, const SampleRule& rule, int num_threads);

 private:
  std::unique_ptr<Growth> take(bool apart);
  void give_back(std::unique_ptr<Growth> growth);
  void grow(Growth& growth, const SampleRule& rule, int num_threads);

  std::vector<int64_t> num_nodes_;
  std::vector<Relation> relations_;
  std::mutex mutex_;  // tried, never waited for: in a forked child it may be held for ever
  std::vector<std::unique_ptr<Growth>> kept_;
};

}  // namespace graphmill
