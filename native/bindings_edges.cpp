// The grouping of edges by their ends.
#include <nanobind/stl/optional.h>

#include "attention.h"
#include "bindings.h"

namespace graphmill {

namespace {

void group_edges_py(const Ids& sources, const Ids& targets, int64_t num_sources, int64_t num_targets, int64_t num_loops,
                    Array<int64_t, 1> indptr, Array<int32_t, 1> by_target, Array<int32_t, 1> edge_ids,
                    std::optional<Array<int64_t, 1>> out_indptr, std::optional<Array<int32_t, 1>> by_source,
                    std::optional<Array<int32_t, 1>> slots) {
  const int64_t num_edges = length(sources);
  require(length(targets) == num_edges, "sources and targets differ in length");
  require(num_sources >= 0 && num_targets >= 0 && num_edges + num_loops < INT32_MAX && num_sources < INT32_MAX &&
              num_targets < INT32_MAX,
          "edges and nodes must be fewer than 2^31");
  require(length(indptr) == num_targets + 1 && length(by_target) == num_edges && length(edge_ids) == num_edges,
          "indptr must be [num_targets + 1], sources and edge_ids [num_edges]");
  require(!out_indptr || (by_source && slots && length(*out_indptr) == num_sources + 1 &&
                          length(*by_source) == num_edges && length(*slots) == num_edges),
          "out_indptr must be [num_sources + 1], targets and slots [num_edges]");
  const EdgeGroups sizes{num_sources, num_targets, num_edges, num_loops, nullptr,
                         nullptr,     nullptr,     nullptr,   nullptr,   nullptr};
  nb::gil_scoped_release release;
  group_edges(sources.data(), targets.data(), sizes, indptr.data(), by_target.data(), edge_ids.data(),
              data_or_null(out_indptr), data_or_null(by_source), data_or_null(slots));
}

}  // namespace

void bind_edges(nb::module_& m) {
  m.def("group_edges", &group_edges_py, nb::arg("sources"), nb::arg("targets"), nb::arg("num_sources"),
        nb::arg("num_targets"), nb::arg("num_loops"), nb::arg("indptr").noconvert(), nb::arg("by_target").noconvert(),
        nb::arg("edge_ids").noconvert(), nb::arg("out_indptr").noconvert().none(),
        nb::arg("by_source").noconvert().none(), nb::arg("slots").noconvert().none());
}

}  // namespace graphmill
