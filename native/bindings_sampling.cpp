// Neighbour sampling. Results are views of memory that is reused from batch to batch.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <variant>
#include <vector>

#include "bindings.h"
#include "node_table.h"
#include "row_finder.h"
#include "sampler.h"

namespace graphmill {

namespace {

// Memory that `owner` holds as a numpy array that keeps it alive.
template <class T, class Owner>
nb::ndarray<nb::numpy, T, nb::ndim<1>> view(const std::shared_ptr<Owner>& owner, T* data, int64_t count) {
  auto* keeper = new std::shared_ptr<Owner>(owner);
  nb::capsule capsule(keeper, [](void* p) noexcept { delete static_cast<std::shared_ptr<Owner>*>(p); });
  static T nothing{};
  return nb::ndarray<nb::numpy, T, nb::ndim<1>>(count ? data : &nothing, {static_cast<size_t>(count)}, capsule);
}

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
    require(edge_ids.has_value() == (open().has_edge_ids()), "edge_ids: where the batch was begun with_edge_ids");
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

std::unique_ptr<NodeTable> node_table(const Ids& nodes) {
  return std::make_unique<NodeTable>(nodes.data(), length(nodes));
}

void find_nodes(const NodeTable& table, const Ids& nodes, Array<int64_t, 1> places, int num_threads) {
  require(length(places) == length(nodes), "nodes and places differ in length");
  nb::gil_scoped_release release;
  table.find(nodes.data(), length(nodes), places.data(), num_threads);
}

// find_rows over int32 or int64 storage ids; keeps the arrays alive.
class RowFinder {
 public:
  RowFinder(AnyIds storage, int64_t own_begin, int64_t own_end) : storage_(storage), begin_(own_begin), end_(own_end) {
    require(static_cast<nb::dlpack::dtype_code>(storage.dtype().code) == nb::dlpack::dtype_code::Int,
            "storage ids must be int32 or int64");
    require(0 <= own_begin && own_begin <= own_end && own_end <= length(storage), "own rows must lie in the graph");
  }

  std::pair<int64_t, int64_t> find(const Ids& nodes, const NodeTable* held, Window& window,
                                   Array<int64_t, 1> rows) const {
    require(length(nodes) == length(rows), "nodes and rows differ in length");
    nb::gil_scoped_release release;
    const FoundCounts found = storage_.dtype().bits == 32 ? find_in<int32_t>(nodes, held, window, rows)
                                                          : find_in<int64_t>(nodes, held, window, rows);
    return {found.own, found.held};
  }

 private:
  template <class Storage>
  FoundCounts find_in(const Ids& nodes, const NodeTable* held, Window& window, const Array<int64_t, 1>& rows) const {
    const OwnRange<Storage> range{static_cast<const Storage*>(storage_.data()), length(storage_), begin_, end_};
    return find_rows(range, held, window, nodes.data(), length(nodes), rows.data());
  }

  AnyIds storage_;
  int64_t begin_, end_;
};

auto window_nodes(const Window& window) {  // a copy: the memory moves when the window grows
  auto copy = std::make_shared<std::vector<int64_t>>(window.nodes);
  return view(copy, copy->data(), static_cast<int64_t>(copy->size()));
}

void find_in_window(const Window& window, const Ids& nodes, Array<int64_t, 1> places, int num_threads) {
  find_nodes(window.table, nodes, places, num_threads);
}

void move_rows(Array<int64_t, 1> rows, int64_t first, const Ids& to) {
  for (int64_t i = 0; i < length(rows); ++i) {
    const int64_t place = rows.data()[i] - first;
    if (place < 0) continue;
    require(place < length(to), "a row has no place");
    rows.data()[i] = first + to.data()[place];
  }
}

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
  nb::class_<NodeTable>(m, "NodeTable", "Finds the place of a node in a list of distinct nodes.")
      .def(nb::new_(&node_table), nb::arg("nodes"))
      .def("__len__", &NodeTable::size)
      .def("find", &find_nodes, nb::arg("nodes"), nb::arg("places").noconvert(), nb::arg("num_threads") = 1,
           "Write each node's place in the list to `places`; -1 for those that are not in it.");
  nb::class_<Window>(m, "Window", "What a window of batches needs and a rank has not, each node once.")
      .def(nb::init<>())
      .def_prop_ro("nodes", &window_nodes, nb::rv_policy::reference)
      .def("find", &find_in_window, nb::arg("nodes"), nb::arg("places").noconvert(), nb::arg("num_threads") = 1);
  nb::class_<RowFinder>(m, "RowFinder", "Where the rows of nodes are: the rank's own, held, or a window's.")
      .def(nb::init<AnyIds, int64_t, int64_t>(), nb::arg("storage"), nb::arg("own_begin"), nb::arg("own_end"))
      .def("find", &RowFinder::find, nb::arg("nodes"), nb::arg("held").none(), nb::arg("window"),
           nb::arg("rows").noconvert(),
           "Write each node's row to `rows`. Returns how many are own, and how many held.");
  m.def("move_rows", &move_rows, nb::arg("rows").noconvert(), nb::arg("first"), nb::arg("to"),
        "rows[i] = first + to[rows[i] - first], of rows from `first` on.");
}

}  // namespace graphmill
