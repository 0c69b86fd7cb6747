// Neighbour sampling. Results are views of memory that is reused from batch to batch.
#include <nanobind/stl/shared_ptr.h>
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
  NeighborSampler(Ids indptr, AnyIds indices) : indptr_(indptr), indices_(indices) {
    require(length(indptr) >= 2, "indptr must hold num_nodes + 1 offsets of at least one node");
    const int64_t num_nodes = length(indptr) - 1, num_edges = length(indices);
    require(indptr.data()[0] == 0 && indptr.data()[num_nodes] == num_edges,
            "indptr must start at 0 and end at the number of edges");
    require(static_cast<nb::dlpack::dtype_code>(indices.dtype().code) == nb::dlpack::dtype_code::Int,
            "indices must be int32 or int64");
    if (indices.dtype().bits == 32)
      sampler_.emplace<Sampler<int32_t>>(indptr.data(), static_cast<const int32_t*>(indices.data()), num_nodes,
                                         num_edges);
    else
      sampler_.emplace<Sampler<int64_t>>(indptr.data(), static_cast<const int64_t*>(indices.data()), num_nodes,
                                         num_edges);
  }

  std::shared_ptr<Neighbourhood> sample(const Ids& seeds, const std::vector<int64_t>& fanouts, uint64_t key,
                                        bool resample, bool with_edge_ids, int num_threads) {
    nb::gil_scoped_release release;
    return visit([&](auto& sampler) {
      return sampler.sample(seeds.data(), length(seeds), fanouts, key, resample, with_edge_ids, num_threads);
    });
  }

 private:
  template <class Call>
  std::shared_ptr<Neighbourhood> visit(const Call& call) {
    if (auto* narrow = std::get_if<Sampler<int32_t>>(&sampler_)) return call(*narrow);
    return call(std::get<Sampler<int64_t>>(sampler_));
  }

  Ids indptr_;
  AnyIds indices_;
  std::variant<std::monostate, Sampler<int32_t>, Sampler<int64_t>> sampler_;
};

// A view of a result's memory that keeps the result alive; when the last view dies the memory serves the next batch.
template <class T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> view(const std::shared_ptr<Neighbourhood>& owner, T* data, int64_t count) {
  auto* keeper = new std::shared_ptr<Neighbourhood>(owner);
  nb::capsule capsule(keeper, [](void* p) noexcept { delete static_cast<std::shared_ptr<Neighbourhood>*>(p); });
  static T nothing{};
  return nb::ndarray<nb::numpy, T, nb::ndim<1>>(count ? data : &nothing, {static_cast<size_t>(count)}, capsule);
}

using Shared = std::shared_ptr<Neighbourhood>;

auto node_ids(const Shared& n) { return view(n, n->node_ids.data(), n->num_nodes); }
auto indptr(const Shared& n) { return view(n, n->indptr.data(), n->num_rows + 1); }
auto indices(const Shared& n) { return view(n, n->indices.data(), n->num_edges); }
auto edge_ids(const Shared& n) { return view(n, n->edge_ids.data(), n->edge_ids.data() ? n->num_edges : 0); }

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
  nb::class_<NeighborSampler>(m, "NeighborSampler")
      .def(nb::init<Ids, AnyIds>(), nb::arg("indptr"), nb::arg("indices"))
      .def("sample", &NeighborSampler::sample, nb::arg("seeds"), nb::arg("fanouts"), nb::arg("key"), nb::kw_only(),
           nb::arg("resample") = false, nb::arg("with_edge_ids") = false, nb::arg("num_threads") = 1);
}

}  // namespace graphmill
