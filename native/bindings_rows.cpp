// Where the rows of nodes are.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>
#include <utility>
#include <vector>

#include "bindings.h"
#include "node_table.h"
#include "row_finder.h"

namespace graphmill {

namespace {

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

}  // namespace

void bind_rows(nb::module_& m) {
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
