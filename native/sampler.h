// Neighbour sampling without replacement, several hops, relabelled to local ids: for each hop, pick and relabel.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "picker.h"
#include "relabeller.h"

namespace graphmill {

template <class Index>
class Sampler {
 public:
  // Throws std::invalid_argument if the topology is invalid: see Picker.
  Sampler(const int64_t* indptr, const Index* indices, int64_t num_rows, int64_t num_edges, int64_t num_nodes,
          int num_threads)
      : picker_(indptr, indices, num_rows, num_edges, num_nodes, num_threads), relabeller_(num_nodes) {}

  const Picker<Index>& picker() const { return picker_; }

  // Throws std::invalid_argument on a seed out of range or a repeated seed.
  std::shared_ptr<Neighbourhood> sample(const int64_t* seeds, int64_t num_seeds, const std::vector<int64_t>& fanouts,
                                        uint64_t key, bool resample, bool with_edge_ids, int num_threads);

 private:
  void sample_hop(Batch& batch, Spans& spans, int64_t fanout, uint64_t key, int num_threads) const;

  Picker<Index> picker_;
  Relabeller relabeller_;
};

// The in-edges that pick() alone takes: row i's lie at indptr[i] of sources and edge_ids.
struct Picked {
  std::vector<int64_t> indptr;
  Buffer<int64_t> sources, edge_ids;
  int64_t num_edges() const { return indptr.back(); }
};

// The in-edges that one hop takes of `rows`. Throws std::invalid_argument on a place that is not a row.
template <class Index>
std::unique_ptr<Picked> pick(const Picker<Index>& picker, const Rows& rows, int num_threads);

// One hop of a batch out of picked in-edges: `indptr` [frontier_size() + 1] from 0; `edge_ids` if the batch has
// them. Throws std::invalid_argument on another number of rows, or a source that is not a node; the batch is unchanged.
void relabel(Batch& batch, int64_t num_nodes, const int64_t* indptr, int64_t num_rows, const int64_t* sources,
             const int64_t* edge_ids);

}  // namespace graphmill
