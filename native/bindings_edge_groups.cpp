// Edges by target and by source, and dot products over them.
#include "bindings_edge_groups.h"

#include <nanobind/stl/optional.h>

#include "edge_dots.h"

namespace graphmill {

namespace {

void make_groups(Groups* self, const Ids& indptr, const Locals& sources, const Locals& edge_ids,
                 std::optional<Ids> out_indptr, std::optional<Locals> targets, std::optional<Locals> slots,
                 int64_t num_sources, int64_t num_loops) {
  require(length(indptr) >= 1, "indptr must hold num_targets + 1 offsets");
  const int64_t num_targets = length(indptr) - 1, num_edges = length(sources);
  require(indptr.data()[0] == 0 && indptr.data()[num_targets] <= num_edges, "indptr must hold offsets into the edges");
  require(length(edge_ids) == num_edges, "sources and edge_ids differ in length");
  require(num_loops >= 0 && num_loops <= num_targets && num_loops <= num_sources,
          "more loops than nodes that are both source and target");
  if (out_indptr) {
    require(targets && slots && length(*targets) == num_edges && length(*slots) == num_edges,
            "targets and slots must be as long as sources");
    require(length(*out_indptr) == num_sources + 1 && out_indptr->data()[num_sources] == indptr.data()[num_targets],
            "out_indptr must hold num_sources + 1 offsets into as many edges as indptr");
  }
  const EdgeGroups edges{num_sources,           num_targets,        num_edges,       num_loops,
                         indptr.data(),         sources.data(),     edge_ids.data(), data_or_null(out_indptr),
                         data_or_null(targets), data_or_null(slots)};
  new (self) Groups{edges, indptr, sources, edge_ids, out_indptr, targets, slots};
}

EdgeDots dots_of(const Groups& groups, int64_t heads, const Floats& q, const Floats& k) {
  require(heads >= 1 && width(q) == width(k) && width(q) % heads == 0, "q and k must have heads * channels columns");
  require(length(q) == groups.edges.num_targets, "q must have a row for each target");
  require(length(k) == groups.edges.num_sources, "k must have a row for each source");
  return {groups.edges, heads, width(q) / heads, q.data(), k.data()};
}

void edge_dots_py(const Groups& groups, int64_t heads, const Floats& q, const Floats& k, Array<float, 2> out,
                  int num_threads) {
  const EdgeDots in = dots_of(groups, heads, q, k);
  require(has_shape(out, in.edges.num_edges, heads), "out must be [num_edges, heads]");
  nb::gil_scoped_release release;
  edge_dots(in, out.data(), num_threads);
}

void edge_dots_backward_py(const Groups& groups, int64_t heads, const Floats& q, const Floats& k, const Floats& grad,
                           Array<float, 2> grad_q, Array<float, 2> grad_k, int num_threads) {
  const EdgeDots in = dots_of(groups, heads, q, k);
  require(in.edges.out_indptr, "a gradient needs the edges by source");
  require(has_shape(grad, in.edges.num_edges, heads), "grad must be [num_edges, heads]");
  require(has_shape(grad_q, length(q), width(q)) && has_shape(grad_k, length(k), width(k)),
          "gradients have the shapes of what they are of");
  nb::gil_scoped_release release;
  edge_dots_backward(in, grad.data(), grad_q.data(), grad_k.data(), num_threads);
}

}  // namespace

void bind_edge_groups(nb::module_& m) {
  nb::class_<Groups>(m, "EdgeGroups", "Edges by target, and by source where a gradient is asked for.")
      .def("__init__", &make_groups, nb::arg("indptr"), nb::arg("sources"), nb::arg("edge_ids"),
           nb::arg("out_indptr").none(), nb::arg("targets").none(), nb::arg("slots").none(), nb::arg("num_sources"),
           nb::arg("num_loops"));
  m.def("edge_dots", &edge_dots_py, nb::arg("groups"), nb::arg("heads"), nb::arg("q"), nb::arg("k"),
        nb::arg("out").noconvert(), nb::arg("num_threads"));
  m.def("edge_dots_backward", &edge_dots_backward_py, nb::arg("groups"), nb::arg("heads"), nb::arg("q"), nb::arg("k"),
        nb::arg("grad"), nb::arg("grad_q").noconvert(), nb::arg("grad_k").noconvert(), nb::arg("num_threads"));
}

}  // namespace graphmill
