// Neighbour sampling. Results are views of memory that is reused from batch to batch.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <variant>
#include <vector>

#include "bindings.h"
#include "sampler.h"

namespace graphmill {

namespace {

// Sampling over int32 or int64 column ids behind one class; keeps the arrays alive.
class NeighborSampler {
 public:
  // `num_nodes`: of the graph that the rows are a part of; without it they are all of its nodes.
  NeighborSampler(Ids indptr, AnyIds indices, int num_threads, std::optional<int64_t> num_nodes_of_graph)
      : indptr_(indptr), indices_(indices) {
    require(length(indptr) >= 2, "indptr must hold num_nodes + 1 offsets of at least one node");
    const int64_t num_rows = length(indptr) - 1, num_edges = length(indices);
    const int64_t num_nodes = num_nodes_of_graph.value_or(num_rows);
    require(num_rows <= num_nodes, "a part has no more rows than the graph has nodes");
    is_part_ = num_rows < num_nodes;
    require(indptr.data()[0] == 0 && indptr.data()[num_rows] == num_edges,
            "indptr must start at 0 and end at the number of edges");
    require(static_cast<nb::dlpack::dtype_code>(indices.dtype().code) == nb::dlpack::dtype_code::Int,
            "indices must be int32 or int64");
    nb::gil_scoped_release release;  // every entry is checked, and perhaps read from a slow disk: heartbeats go on
    if (indices.dtype().bits == 32)
      sampler_.emplace<Sampler<int32_t>>(indptr.data(), static_cast<const int32_t*>(indices.data()), num_rows,
                                         num_edges, num_nodes, num_threads);
    else
      sampler_.emplace<Sampler<int64_t>>(indptr.data(), static_cast<const int64_t*>(indices.data()), num_rows,
                                         num_edges, num_nodes, num_threads);
  }

  std::shared_ptr<Neighbourhood> sample(const Ids& seeds, const std::vector<int64_t>& fanouts, uint64_t key,
                                        bool resample, bool with_edge_ids, int num_threads) {
    require(!is_part_, "a part holds the rows of some nodes only: pick() them by their places");
    nb::gil_scoped_release release;
    return visit<std::shared_ptr<Neighbourhood>>([&](auto& sampler) {
      return sampler.sample(seeds.data(), length(seeds), fanouts, key, resample, with_edge_ids, num_threads);
    });
  }

  // In-edges of `nodes`, whose rows are at `places`; without places, at their own numbers.
  std::shared_ptr<Picked> pick(const Ids& nodes, int64_t fanout, uint64_t key, std::optional<Ids> places,
                               int num_threads) {
    require(!places || length(*places) == length(nodes), "nodes and places differ in length");
    const Rows rows{nodes.data(), places ? places->data() : nodes.data(), length(nodes), fanout, key};
    nb::gil_scoped_release release;
    return visit<std::shared_ptr<Picked>>(
        [&](auto& sampler) { return graphmill::pick(sampler.picker(), rows, num_threads); });
  }

 private:
  template <class Result, class Call>
  Result visit(const Call& call) {
    if (auto* narrow = std::get_if<Sampler<int32_t>>(&sampler_)) return call(*narrow);
    return call(std::get<Sampler<int64_t>>(sampler_));
  }

  Ids indptr_;
  AnyIds indices_;
  bool is_part_ = false;
  std::variant<std::monostate, Sampler<int32_t>, Sampler<int64_t>> sampler_;
};

// A neighbourhood under construction, owned by Python: unusable once it is finished.
class OpenBatch {
 public:
  OpenBatch(const Relabeller& relabeller, const Ids& seeds, bool resample, bool with_edge_ids)
      : num_nodes_(relabeller.num_nodes()),
        batch_(std::make_unique<Batch>(relabeller, seeds.data(), length(seeds), resample, with_edge_ids)) {}

  auto frontier() const {  // a copy: the memory moves when the batch grows
    auto copy = std::make_shared<std::vector<int64_t>>(open().frontier(), open().frontier() + open().frontier_size());
    return view(copy, copy->data(), length_of(*copy));
  }

  void relabel(const Ids& indptr, const Ids& sources, std::optional<Ids> edge_ids) {
    require(length(indptr) >= 1 && indptr.data()[0] == 0, "indptr must hold num_rows + 1 offsets from 0");
    require(indptr.data()[length(indptr) - 1] == length(sources), "indptr must end at the number of sources");
    require(edge_ids.has_value() == open().has_edge_ids(), "edge_ids: where the batch was begun with_edge_ids");
    require(!edge_ids || length(*edge_ids) == length(sources), "edge_ids and sources differ in length");
    nb::gil_scoped_release release;
    graphmill::relabel(open(), num_nodes_, indptr.data(), length(indptr) - 1, sources.data(), data_or_null(edge_ids));
  }

  std::shared_ptr<Neighbourhood> finish() {
    auto result = open().result();
    batch_.reset();
    return result;
  }

 private:
  static int64_t length_of(const std::vector<int64_t>& values) { return static_cast<int64_t>(values.size()); }
  Batch& open() const {
    require(batch_ != nullptr, "the batch is finished");
    return *batch_;
  }

  int64_t num_nodes_;
  std::unique_ptr<Batch> batch_;
};

using Shared = std::shared_ptr<Neighbourhood>;

auto node_ids(const Shared& n) { return view(n, n->node_ids.data(), n->num_nodes); }
auto indptr(const Shared& n) { return view(n, n->indptr.data(), n->num_rows + 1); }
auto indices(const Shared& n) { return view(n, n->indices.data(), n->num_edges); }
auto edge_ids(const Shared& n) { return view(n, n->edge_ids.data(), n->has_edge_ids ? n->num_edges : 0); }

using SharedPick = std::shared_ptr<Picked>;

auto picked_indptr(const SharedPick& p) { return view(p, p->indptr.data(), static_cast<int64_t>(p->indptr.size())); }
auto picked_sources(const SharedPick& p) { return view(p, p->sources.data(), p->num_edges()); }
auto picked_edge_ids(const SharedPick& p) { return view(p, p->edge_ids.data(), p->num_edges()); }

std::unique_ptr<OpenBatch> begin_batch(const Relabeller& relabeller, const Ids& seeds, bool resample,
                                       bool with_edge_ids) {
  return std::make_unique<OpenBatch>(relabeller, seeds, resample, with_edge_ids);
}

}  // namespace

void bind_sampling(nb::module_& m) {
  nb::class_<Neighbourhood>(m, "Neighbourhood", "One sampled neighbourhood; its arrays are views of reused memory.")
      .def_prop_ro("node_ids", &node_ids, nb::rv_policy::reference)
      .def_prop_ro("indptr", &indptr, nb::rv_policy::reference)
      .def_prop_ro("indices", &indices, nb::rv_policy::reference)
      .def_prop_ro("edge_ids", &edge_ids, nb::rv_policy::reference)
      .def_prop_ro("num_nodes_per_hop", [](const Shared& n) { return n->nodes_per_hop; })
      .def_prop_ro("num_edges_per_hop", [](const Shared& n) { return n->edges_per_hop; })
      .def_prop_ro("num_rows_per_hop", [](const Shared& n) { return n->rows_per_hop; });
  nb::class_<Picked>(m, "Picked", "The in-edges that one hop takes: row i's begin at indptr[i].")
      .def_prop_ro("indptr", &picked_indptr, nb::rv_policy::reference)
      .def_prop_ro("sources", &picked_sources, nb::rv_policy::reference)
      .def_prop_ro("edge_ids", &picked_edge_ids, nb::rv_policy::reference);
  nb::class_<NeighborSampler>(m, "NeighborSampler")
      .def(nb::init<Ids, AnyIds, int, std::optional<int64_t>>(), nb::arg("indptr"), nb::arg("indices"),
           nb::arg("num_threads") = 1, nb::arg("num_nodes").none() = nb::none())
      .def("pick", &NeighborSampler::pick, nb::arg("nodes"), nb::arg("fanout"), nb::arg("key"), nb::kw_only(),
           nb::arg("places").none() = nb::none(), nb::arg("num_threads") = 1)
      .def("sample", &NeighborSampler::sample, nb::arg("seeds"), nb::arg("fanouts"), nb::arg("key"), nb::kw_only(),
           nb::arg("resample") = false, nb::arg("with_edge_ids") = false, nb::arg("num_threads") = 1);
  nb::class_<Relabeller>(m, "Relabeller", "Gives the nodes of batches local ids, from edges that were picked anywhere.")
      .def(nb::init<int64_t, bool>(), nb::arg("num_nodes"), nb::kw_only(), nb::arg("hashed") = false)
      .def("begin", &begin_batch, nb::arg("seeds"), nb::kw_only(), nb::arg("resample") = false,
           nb::arg("with_edge_ids") = false, nb::keep_alive<0, 1>());
  nb::class_<OpenBatch>(m, "OpenBatch", "A neighbourhood in the making.")
      .def_prop_ro("frontier", &OpenBatch::frontier, nb::rv_policy::reference)
      .def("relabel", &OpenBatch::relabel, nb::arg("indptr"), nb::arg("sources"),
           nb::arg("edge_ids").none() = nb::none())
      .def("finish", &OpenBatch::finish);
}

}  // namespace graphmill
