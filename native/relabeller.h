// The second half of sampling: a batch's nodes get local ids in the order in which they are first met. It needs no
// topology: picked in-edges may come from anywhere.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "buffer.h"
#include "node_table.h"

namespace graphmill {

// One sampled neighbourhood. With `resample` (DGL's blocks) each hop has a row for every node known before it; without
// it (PyG's frontier) for the nodes that the hop before it found, so the rows of all hops form one sparse matrix.
struct Neighbourhood {
  Buffer<int64_t> node_ids, indptr, edge_ids;
  Buffer<int32_t> indices;
  int64_t num_nodes = 0, num_rows = 0, num_edges = 0;
  bool has_edge_ids = false;
  std::vector<int64_t> nodes_per_hop, edges_per_hop, rows_per_hop;

  // Empty, but with the memory kept.
  void clear() {
    num_nodes = num_rows = num_edges = 0;
    has_edge_ids = false;
    nodes_per_hop.clear();
    edges_per_hop.clear();
    rows_per_hop.clear();
  }
};

// Provides memory for batches over nodes 0..num_nodes. Results that Python holds may outlive it. `hashed`: what a batch
// looks nodes up in takes memory by the nodes of the batch, not 4 bytes for each of the graph, and somewhat longer.
class Relabeller {
 public:
  explicit Relabeller(int64_t num_nodes, bool hashed = false) : num_nodes_(num_nodes), hashed_(hashed) {}
  int64_t num_nodes() const { return num_nodes_; }

 private:
  friend class Batch;
  // Position of each node in the batch: base + local id; anything below base is from an older batch. Where it is
  // hashed: the batch's nodes, whose places are their local ids.
  struct Workspace {
    std::vector<uint32_t> position;
    uint32_t base = 1;
    NodeTable table;
  };
  struct Pool {
    std::mutex mutex;
    std::vector<std::unique_ptr<Workspace>> workspaces;
    std::vector<std::unique_ptr<Neighbourhood>> results;
  };

  std::unique_ptr<Workspace> take_workspace() const;
  std::shared_ptr<Neighbourhood> take_result() const;

  int64_t num_nodes_;
  bool hashed_;
  std::shared_ptr<Pool> pool_ = std::make_shared<Pool>();
};

// A neighbourhood under construction: seeds first, then hop by hop.
class Batch {
 public:
  // Throws std::invalid_argument on a seed out of range or a repeated seed.
  Batch(const Relabeller& relabeller, const int64_t* seeds, int64_t num_seeds, bool resample, bool with_edge_ids);
  ~Batch();  // what this batch wrote to the workspace is stale afterwards
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // The nodes whose in-edges the next hop asks for.
  const int64_t* frontier() const { return out_->node_ids.data() + first_of_frontier(); }
  int64_t frontier_size() const { return out_->num_nodes - first_of_frontier(); }

  // Begin a hop: room for the offsets of its rows; ends [frontier_size() + 1], of which ends[0] is set.
  int64_t* begin_hop();
  // When ends is filled: room for the hop's edges.
  void reserve_edges();
  // The hop's edges lie at ends[0], ends[1], ... of these.
  int32_t* indices() { return out_->indices.data(); }
  bool has_edge_ids() const { return out_->has_edge_ids; }
  int64_t* edge_ids() { return out_->has_edge_ids ? out_->edge_ids.data() : nullptr; }
  // Give the sources of `count` edges local ids, in that order, from edge `first` on; `sources` may be those of
  // indices() themselves. No other edge is touched, so they are relabelled while other threads still pick what follows.
  template <class Id>
  void relabel(const Id* sources, int64_t first, int64_t count);
  void end_hop();

  const std::shared_ptr<Neighbourhood>& result() const { return out_; }

 private:
  void give_back();
  int64_t first_of_frontier() const { return resample_ ? 0 : node_begin_; }
  void place_seeds(const int64_t* seeds, int64_t num_seeds);
  bool is_placed(int64_t seed) const;
  template <class Id>
  void relabel_hashed(const Id* sources, int32_t* indices, int64_t count);

  const Relabeller& relabeller_;
  std::unique_ptr<Relabeller::Workspace> work_;
  std::shared_ptr<Neighbourhood> out_;
  bool resample_;
  int64_t node_begin_ = 0;    // the first node that the hop before found
  int64_t nodes_before_ = 0;  // this hop
  int64_t edges_before_ = 0;
};

}  // namespace graphmill
