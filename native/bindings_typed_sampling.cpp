// Sampling over several types of nodes and edges.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <vector>

#include "bindings.h"
#include "typed_sampler.h"

namespace graphmill {

namespace {

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
    columns.reserve(arrays_.size());
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

}  // namespace

void bind_typed_sampling(nb::module_& m) {
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
}

}  // namespace graphmill
