// Neighbour sampling without replacement, several hops, relabelled to local ids.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace graphmill {

// Memory that is reused from batch to batch: fresh pages cost more than the sampling itself.
template <class T>
class Buffer {
 public:
  T* data() { return memory_.get(); }
  const T* data() const { return memory_.get(); }
  T& operator[](int64_t i) { return memory_[i]; }

  // Room for `count` values, keeping the first `kept`.
  void reserve(int64_t count, int64_t kept = 0) {
    if (count <= capacity_) return;
    const int64_t capacity = count + count / 4;
    std::unique_ptr<T[]> grown(new T[capacity]);
    for (int64_t i = 0; i < kept; ++i) grown[i] = memory_[i];
    memory_ = std::move(grown);
    capacity_ = capacity;
  }

 private:
  std::unique_ptr<T[]> memory_;
  int64_t capacity_ = 0;
};

// One sampled neighbourhood. With `resample` (DGL's blocks) rows of hop h start at row_offset[h]; without it
// (PyG's frontier) rows follow each other and the rows of all hops form one compressed sparse matrix.
struct Neighbourhood {
  Buffer<int64_t> node_ids, indptr, edge_ids;
  Buffer<int32_t> indices;
  int64_t num_nodes = 0, num_rows = 0, num_edges = 0;
  std::vector<int64_t> nodes_per_hop, edges_per_hop, rows_per_hop;

  // Empty, but with the memory kept.
  void clear() {
    num_nodes = num_rows = num_edges = 0;
    nodes_per_hop.clear();
    edges_per_hop.clear();
    rows_per_hop.clear();
  }
};

template <class Index>
class Sampler {
 public:
  Sampler(const int64_t* indptr, const Index* indices, int64_t num_nodes, int64_t num_edges);

  // Throws std::invalid_argument on a seed out of range or a repeated seed.
  std::shared_ptr<Neighbourhood> sample(const int64_t* seeds, int64_t num_seeds, const std::vector<int64_t>& fanouts,
                                        uint64_t key, bool resample, bool with_edge_ids, int num_threads);

 private:
  // Where each node stands in the batch: base + local id; anything below base is from an older batch.
  struct Workspace {
    std::vector<uint32_t> position;
    uint32_t base = 1;
    Buffer<int64_t> starts, degrees;  // of the rows of one hop
  };

  // State shared with results, which may outlive the sampler in Python's hands.
  struct Pool {
    std::mutex mutex;
    std::vector<std::unique_ptr<Workspace>> workspaces;
    std::vector<std::unique_ptr<Neighbourhood>> results;
  };

  // The rows of one hop: nodes [node_begin, node_end) of the batch become rows first_row, first_row + 1, ...
  struct Hop {
    int64_t node_begin, node_end, first_row, fanout;
    uint64_t key;
    bool with_edge_ids;
  };

  std::unique_ptr<Workspace> take_workspace();
  std::shared_ptr<Neighbourhood> take_result();
  void place_seeds(Workspace& work, Neighbourhood& out, const int64_t* seeds, int64_t num_seeds) const;
  void count_edges(Workspace& work, Neighbourhood& out, const Hop& hop) const;
  void sample_hop(Workspace& work, Neighbourhood& out, const Hop& hop, int num_threads) const;
  void pick_rows(const Workspace& work, Neighbourhood& out, const Hop& hop, int64_t begin, int64_t end) const;
  void relabel_rows(Workspace& work, Neighbourhood& out, const Hop& hop, int64_t begin, int64_t end) const;

  const int64_t* indptr_;
  const Index* indices_;
  int64_t num_nodes_, num_edges_;
  std::shared_ptr<Pool> pool_ = std::make_shared<Pool>();
};

// Write the positions of min(degree, fanout) distinct in-edges of a node to `picked`; fanout < 0: all of them.
// Floyd's algorithm (Bentley & Floyd 1987, "A sample of brilliance"): one draw per pick, no rejection.
void pick_edges(int64_t start, int64_t degree, int64_t count, uint64_t node_key, int64_t* picked);

}  // namespace graphmill
