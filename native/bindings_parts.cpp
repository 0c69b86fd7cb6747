// Assignment of nodes to parts.
#include <algorithm>
#include <memory>
#include <variant>

#include "bindings.h"
#include "parts.h"

namespace graphmill {

namespace {

using Weights = Array<const uint32_t, 2>;
using Parts = Array<int32_t, 1>;

bool is_narrow(const AnyIds& indices) {
  require(static_cast<nb::dlpack::dtype_code>(indices.dtype().code) == nb::dlpack::dtype_code::Int,
          "indices must be int32 or int64");
  return indices.dtype().bits == 32;
}

void check_rows(const Ids& indptr, const AnyIds& indices) {
  require(length(indptr) >= 1 && indptr.data()[0] == 0, "indptr must hold num_rows + 1 offsets from 0");
  for (int64_t row = 0; row + 1 < length(indptr); ++row)
    require(indptr.data()[row] <= indptr.data()[row + 1], "indptr must not fall");
  require(indptr.data()[length(indptr) - 1] == length(indices), "indptr must end at the number of entries");
}

template <class Index>
void check_nodes(const Index* indices, int64_t count, int64_t num_nodes) {
  for (int64_t at = 0; at < count; ++at)
    require(indices[at] >= 0 && indices[at] < num_nodes, "an entry is not a node of the graph");
}

void check_parts(const int32_t* parts, int64_t num_nodes, int num_parts, bool all_assigned) {
  require(num_parts >= 1, "there must be a part");
  for (int64_t node = 0; node < num_nodes; ++node)
    require(parts[node] >= (all_assigned ? 0 : -1) && parts[node] < num_parts, "a node is in a part that is none");
}

// PartsOfGraph over int32 or int64 ids; keeps the arrays alive.
class GraphParts {
 public:
  GraphParts(Ids indptr, AnyIds indices, Weights weights, Ids limits, Parts parts, int num_parts)
      : indptr_(indptr), indices_(indices), weights_(weights), limits_(limits), parts_(parts), num_parts_(num_parts) {
    const int64_t num_nodes = length(indptr) - 1;
    check_rows(indptr, indices);
    require(length(parts) == num_nodes && length(weights) == num_nodes, "parts and weights are one row per node");
    require(width(weights) == length(limits) && length(limits) >= 1, "there must be a limit for each weight");
    for (int64_t a = 0; a < length(limits); ++a) require(limits.data()[a] > 0, "limits must be above 0");
    check_parts(parts.data(), num_nodes, num_parts, false);
    const Amounts amounts{weights.data(), limits.data(), static_cast<int>(length(limits))};
    if (is_narrow(indices)) hold<int32_t>(num_nodes, amounts);
    else hold<int64_t>(num_nodes, amounts);
  }

  void stream(const Ids& blocks, int64_t width) {
    require(width >= 1, "a block must have a node");
    const int64_t num_blocks = (length(parts_) + width - 1) / width;
    for (int64_t i = 0; i < length(blocks); ++i)
      require(blocks.data()[i] >= 0 && blocks.data()[i] < num_blocks, "there is no such block");
    visit([&](auto& graph) { graph.stream(blocks.data(), length(blocks), width); });
  }

  void fill(const Ids& nodes, int amount) {
    require(amount >= 0 && amount < static_cast<int>(length(limits_)), "there is no such amount");
    for (int64_t i = 0; i < length(nodes); ++i)
      require(nodes.data()[i] >= 0 && nodes.data()[i] < length(parts_), "there is no such node");
    visit([&](auto& graph) { graph.fill(nodes.data(), length(nodes), amount); });
  }

  int64_t rebalance() {
    check_parts(parts_.data(), length(parts_), num_parts_, true);
    int64_t num_moved = 0;
    visit([&](auto& graph) { num_moved = graph.rebalance(); });
    return num_moved;
  }

  int64_t refine(int num_passes) {
    check_parts(parts_.data(), length(parts_), num_parts_, true);
    int64_t gain = 0;
    visit([&](auto& graph) { gain = graph.refine(num_passes); });
    return gain;
  }

 private:
  template <class Index>
  void hold(int64_t num_nodes, Amounts amounts) {
    const auto* indices = static_cast<const Index*>(indices_.data());
    check_nodes(indices, length(indices_), num_nodes);
    graph_ = std::make_unique<PartsOfGraph<Index>>(UndirectedGraph<Index>{indptr_.data(), indices, num_nodes}, amounts,
                                                   parts_.data(), num_parts_);
  }

  template <class Do>
  void visit(Do&& act) {
    nb::gil_scoped_release release;
    std::visit([&](auto& graph) { act(*graph); }, graph_);
  }

  Ids indptr_;
  AnyIds indices_;
  Weights weights_;
  Ids limits_;
  Parts parts_;
  int num_parts_;
  std::variant<std::unique_ptr<PartsOfGraph<int32_t>>, std::unique_ptr<PartsOfGraph<int64_t>>> graph_;
};

int64_t count_crossing_py(const Ids& indptr, const AnyIds& indices, int64_t first_node,
                          const Array<const int32_t, 1>& parts, int num_parts, Array<int64_t, 1> halos) {
  const int64_t num_rows = length(indptr) - 1, num_nodes = length(parts);
  check_rows(indptr, indices);
  require(first_node >= 0 && first_node + num_rows <= num_nodes, "the rows are not nodes of the graph");
  require(length(halos) == num_parts, "halos are one per part");
  const bool narrow = is_narrow(indices);
  nb::gil_scoped_release release;
  check_parts(parts.data(), num_nodes, num_parts, true);
  const auto count = [&](const auto* ids) {
    check_nodes(ids, length(indices), num_nodes);
    return count_crossing(indptr.data(), ids, num_rows, first_node, parts.data(), num_parts, halos.data());
  };
  return narrow ? count(static_cast<const int32_t*>(indices.data()))
                : count(static_cast<const int64_t*>(indices.data()));
}

}  // namespace

void bind_parts(nb::module_& m) {
  nb::class_<GraphParts>(m, "GraphParts")
      .def(nb::init<Ids, AnyIds, Weights, Ids, Parts, int>(), nb::arg("indptr"), nb::arg("indices"), nb::arg("weights"),
           nb::arg("limits"), nb::arg("parts").noconvert(), nb::arg("num_parts"))
      .def("stream", &GraphParts::stream, nb::arg("blocks"), nb::arg("width"))
      .def("fill", &GraphParts::fill, nb::arg("nodes"), nb::arg("amount"))
      .def("rebalance", &GraphParts::rebalance)
      .def("refine", &GraphParts::refine, nb::arg("num_passes"));
  m.def("count_crossing", &count_crossing_py, nb::arg("indptr"), nb::arg("indices"), nb::arg("first_node"),
        nb::arg("parts"), nb::arg("num_parts"), nb::arg("halos").noconvert());
}

}  // namespace graphmill
