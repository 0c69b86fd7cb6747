// Edges in columns, sampling over several types of nodes and edges, and pairs that are no edges.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <vector>

#include "bindings.h"
#include "columns.h"
#include "negatives.h"
#include "reused.h"
#include "typed_sampler.h"

namespace graphmill {

namespace {

using Doubles = Array<const double, 1>;

bool is_narrow(const AnyIds& ids) {
  require(static_cast<nb::dlpack::dtype_code>(ids.dtype().code) == nb::dlpack::dtype_code::Int &&
              (ids.dtype().bits == 32 || ids.dtype().bits == 64),
          "ids must be int32 or int64");
  return ids.dtype().bits == 32;
}

template <class Id>
EdgeList<Id> edge_list(const AnyIds& sources, const AnyIds& targets, int64_t num_sources, int64_t num_targets) {
  return {static_cast<const Id*>(sources.data()), static_cast<const Id*>(targets.data()), length(sources), num_sources,
          num_targets};
}

bool compress_py(const AnyIds& sources, const AnyIds& targets, int64_t num_sources, Array<int64_t, 1> indptr,
                 Array<int32_t, 1> indices, Array<int64_t, 1> order, int num_threads) {
  const bool narrow = is_narrow(sources);
  const int64_t num_targets = length(indptr) - 1;
  require(narrow == is_narrow(targets) && length(sources) == length(targets), "sources and targets must be alike");
  require(num_targets >= 0 && num_sources >= 0 && num_sources < INT32_MAX, "at most 2^31 - 2 nodes");
  require(length(indices) == length(sources) && length(order) == length(sources),
          "indices and order must be [num_edges]");
  nb::gil_scoped_release release;
  if (narrow)
    return compress(edge_list<int32_t>(sources, targets, num_sources, num_targets), indptr.data(), indices.data(),
                    order.data(), num_threads);
  return compress(edge_list<int64_t>(sources, targets, num_sources, num_targets), indptr.data(), indices.data(),
                  order.data(), num_threads);
}

void check_columns(const Ids& indptr, int64_t num_edges) {
  require(length(indptr) >= 1 && indptr.data()[0] == 0 && indptr.data()[length(indptr) - 1] == num_edges,
          "indptr must start at 0 and end at the number of edges");
  for (int64_t i = 1; i < length(indptr); ++i)
    require(indptr.data()[i - 1] <= indptr.data()[i], "indptr must not fall");
}

void sort_rows_by_time_py(const Ids& indptr, Array<int32_t, 1> indices, Array<int64_t, 1> order,
                          Array<int64_t, 1> times, int num_threads) {
  check_columns(indptr, length(indices));
  require(length(order) == length(indices) && length(times) == length(indices), "one order and time for each edge");
  nb::gil_scoped_release release;
  sort_rows_by_time(indptr.data(), length(indptr) - 1, indices.data(), order.data(), times.data(), num_threads);
}

void accumulate_weights_py(const Ids& indptr, const Doubles& weights, Array<double, 1> out) {
  check_columns(indptr, length(weights));
  require(length(out) == length(weights), "one sum for each weight");
  nb::gil_scoped_release release;
  accumulate_weights(indptr.data(), length(indptr) - 1, weights.data(), out.data());
}

// The arrays of one relation, kept alive.
struct RelationArrays {
  int source, target;
  Ids indptr;
  AnyIds indices;
  std::optional<Ids> order;
  std::optional<Doubles> weights;
  std::optional<Ids> times;

  RelationArrays(int source_type, int target_type, Ids its_indptr, AnyIds its_indices, std::optional<Ids> its_order,
                 std::optional<Doubles> its_weights, std::optional<Ids> its_times)
      : source(source_type),
        target(target_type),
        indptr(its_indptr),
        indices(its_indices),
        order(its_order),
        weights(its_weights),
        times(its_times) {
    const int64_t num_edges = length(indices);
    check_columns(indptr, num_edges);
    require(!order || length(*order) == num_edges, "one order for each edge");
    require(!weights || length(*weights) == num_edges, "one weight for each edge");
    require(!times || length(*times) == num_edges, "one time for each edge");
  }

  Relation columns(const std::vector<int64_t>& num_nodes) const {
    const int num_types = static_cast<int>(num_nodes.size());
    require(source >= 0 && source < num_types && target >= 0 && target < num_types, "a relation joins known types");
    require(length(indptr) == num_nodes[target] + 1, "a relation has a row for each node of its target's type");
    const bool narrow = is_narrow(indices);
    const auto* few = static_cast<const int32_t*>(indices.data());
    const auto* many = static_cast<const int64_t*>(indices.data());
    for (int64_t i = 0; i < length(indices); ++i)
      require(static_cast<uint64_t>(narrow ? few[i] : many[i]) < static_cast<uint64_t>(num_nodes[source]),
              "an edge comes from no node of its source's type");
    for (int64_t row = 0; times && row < num_nodes[target]; ++row)
      for (int64_t e = indptr.data()[row] + 1; e < indptr.data()[row + 1]; ++e)
        require(times->data()[e - 1] <= times->data()[e], "the times of a row must ascend");
    return {source,
            target,
            indptr.data(),
            narrow ? few : nullptr,
            narrow ? nullptr : many,
            data_or_null(order),
            data_or_null(weights),
            data_or_null(times)};
  }
};

class TypedNeighborSampler {
 public:
  TypedNeighborSampler(std::vector<int64_t> num_nodes, std::vector<RelationArrays> relations)
      : arrays_(std::move(relations)) {
    for (const int64_t count : num_nodes) require(count >= 0 && count < INT32_MAX, "at most 2^31 - 2 nodes of a type");
    std::vector<Relation> columns;
    for (const RelationArrays& relation : arrays_) columns.push_back(relation.columns(num_nodes));
    sampler_ = std::make_unique<TypedSampler>(std::move(num_nodes), std::move(columns));
  }

  std::shared_ptr<TypedSubgraph> sample(const std::vector<int>& types, const std::vector<Ids>& nodes,
                                        const std::vector<std::optional<Ids>>& times,
                                        std::vector<std::vector<int64_t>> fanouts, int64_t num_hops, uint64_t key,
                                        bool replace, bool last, bool disjoint, bool induced, int num_threads) {
    require(types.size() == nodes.size() && types.size() == times.size(), "one list of seeds for each type");
    require(fanouts.size() == sampler_->num_relations() && num_hops >= 0, "fan-outs for each relation");
    for (const auto& of : fanouts) require(of.size() == static_cast<size_t>(num_hops), "a fan-out for each hop");
    std::vector<TypedSeeds> seeds;
    for (size_t i = 0; i < types.size(); ++i) {
      require(types[i] >= 0 && types[i] < static_cast<int>(sampler_->num_types()), "seeds are of known types");
      require(!times[i] || (disjoint && length(*times[i]) == length(nodes[i])),
              "times: one for each seed, which has a subgraph of its own");
      seeds.push_back({types[i], nodes[i].data(), length(nodes[i]), data_or_null(times[i])});
    }
    SampleRule rule{static_cast<size_t>(num_hops), std::move(fanouts), replace, last, disjoint, induced, key};
    nb::gil_scoped_release release;
    return sampler_->sample(seeds, rule, num_threads);
  }

 private:
  std::vector<RelationArrays> arrays_;
  std::unique_ptr<TypedSampler> sampler_;
};

using Shared = std::shared_ptr<TypedSubgraph>;

auto node_ids(const Shared& s, size_t type) {
  auto& line = s->nodes.at(type).ids;
  return view(s, line.values.get(), line.count);
}

auto subgraphs(const Shared& s, size_t type) {
  auto& line = s->nodes.at(type).subgraph;
  return view(s, line.values.get(), line.count);
}

auto edge_index(const Shared& s, size_t relation) {
  auto& line = s->edges.at(relation).ends;
  return view(s, line.values.get(), line.count);
}

auto edge_ids(const Shared& s, size_t relation) {
  auto& line = s->edges.at(relation).ids;
  return view(s, line.values.get(), line.count);
}

// Bytes that other batches had: what they hold is written over.
nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>> reused_bytes(int64_t size) {
  require(size >= 0, "size must not be negative");
  auto* block = new ReusedMemory::Block(ReusedMemory::take(size));
  nb::capsule owner(block, [](void* p) noexcept {
    auto* done = static_cast<ReusedMemory::Block*>(p);
    ReusedMemory::give_back(std::move(*done));
    delete done;
  });
  return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(block->memory.get(), {static_cast<size_t>(size)}, owner);
}

int64_t draw_negatives_py(std::optional<Ids> indptr, std::optional<Locals> sources, std::optional<Ids> times,
                          int64_t num_sources, int64_t num_targets, std::optional<Doubles> source_weights,
                          std::optional<Doubles> target_weights, std::optional<Ids> source_times,
                          std::optional<Ids> target_times, std::optional<Ids> given, std::optional<Ids> at,
                          uint64_t key, int tries, Array<int64_t, 1> source_out, Array<int64_t, 1> target_out,
                          int num_threads) {
  const int64_t count = length(source_out);
  require(indptr.has_value() == sources.has_value(), "known edges are indptr and sources");
  if (indptr) {
    require(length(*indptr) == num_targets + 1, "indptr must be [num_targets + 1]");
    check_columns(*indptr, length(*sources));
    require(!times || length(*times) == length(*sources), "one time for each edge");
  }
  require(num_sources > 0 && num_targets > 0, "there are no nodes to draw");
  require(!source_weights || length(*source_weights) == num_sources, "one weight for each source");
  require(!target_weights || length(*target_weights) == num_targets, "one weight for each target");
  require(!source_times || length(*source_times) == num_sources, "one time for each source");
  require(!target_times || length(*target_times) == num_targets, "one time for each target");
  require(length(target_out) == count && (!given || length(*given) == count) && (!at || length(*at) == count),
          "results, given sources and times must be alike");
  for (int64_t i = 0; given && i < count; ++i)
    require(static_cast<uint64_t>(given->data()[i]) < static_cast<uint64_t>(num_sources), "a given source is no node");
  const KnownEdges known{data_or_null(indptr), data_or_null(sources), data_or_null(times)};
  const Negatives wanted{count, data_or_null(given), data_or_null(at), key, tries};
  nb::gil_scoped_release release;
  return draw_negatives(indptr ? &known : nullptr,
                        {num_sources, data_or_null(source_weights), data_or_null(source_times)},
                        {num_targets, data_or_null(target_weights), data_or_null(target_times)}, wanted,
                        source_out.data(), target_out.data(), num_threads);
}

}  // namespace

void bind_typed_sampling(nb::module_& m) {
  m.def("compress", &compress_py, nb::arg("sources"), nb::arg("targets"), nb::arg("num_sources"),
        nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(), nb::arg("order").noconvert(),
        nb::arg("num_threads"), "Put edges into columns. True: each stays where it is, and order was not written.");
  m.def("sort_rows_by_time", &sort_rows_by_time_py, nb::arg("indptr"), nb::arg("indices").noconvert(),
        nb::arg("order").noconvert(), nb::arg("times").noconvert(), nb::arg("num_threads"));
  m.def("accumulate_weights", &accumulate_weights_py, nb::arg("indptr"), nb::arg("weights"),
        nb::arg("out").noconvert());
  nb::class_<RelationArrays>(m, "Relation", "The in-edges of one type of edge, in columns.")
      .def(nb::init<int, int, Ids, AnyIds, std::optional<Ids>, std::optional<Doubles>, std::optional<Ids>>(),
           nb::arg("source"), nb::arg("target"), nb::arg("indptr"), nb::arg("indices"),
           nb::arg("order").none() = nb::none(), nb::arg("weights").none() = nb::none(),
           nb::arg("times").none() = nb::none());
  nb::class_<TypedSubgraph>(m, "TypedSubgraph", "What was sampled around the seeds of a batch.")
      .def("node_ids", &node_ids, nb::arg("type"))
      .def("subgraphs", &subgraphs, nb::arg("type"))
      .def("edge_index", &edge_index, nb::arg("relation"))
      .def("edge_ids", &edge_ids, nb::arg("relation"))
      .def("num_nodes_per_hop", [](const Shared& s, size_t type) { return s->nodes.at(type).per_hop; })
      .def("num_edges_per_hop", [](const Shared& s, size_t relation) { return s->edges.at(relation).per_hop; });
  nb::class_<TypedNeighborSampler>(m, "TypedNeighborSampler")
      .def(nb::init<std::vector<int64_t>, std::vector<RelationArrays>>(), nb::arg("num_nodes"), nb::arg("relations"))
      .def("sample", &TypedNeighborSampler::sample, nb::arg("types"), nb::arg("nodes"), nb::arg("times"),
           nb::arg("fanouts"), nb::arg("num_hops"), nb::arg("key"), nb::kw_only(), nb::arg("replace") = false,
           nb::arg("last") = false, nb::arg("disjoint") = false, nb::arg("induced") = false,
           nb::arg("num_threads") = 1);
  m.def("reused_bytes", &reused_bytes, nb::arg("size"), nb::rv_policy::reference,
        "Memory [size] that comes back when the last array over it is gone; not cleared.");
  m.def("draw_negatives", &draw_negatives_py, nb::kw_only(), nb::arg("indptr").none(), nb::arg("sources").none(),
        nb::arg("times").none(), nb::arg("num_sources"), nb::arg("num_targets"), nb::arg("source_weights").none(),
        nb::arg("target_weights").none(), nb::arg("source_times").none(), nb::arg("target_times").none(),
        nb::arg("given").none(), nb::arg("at").none(), nb::arg("key"), nb::arg("tries"),
        nb::arg("source_out").noconvert(), nb::arg("target_out").noconvert(), nb::arg("num_threads"));
}

}  // namespace graphmill
