// Rows of any format by number, and ranges of rows: what batches are cut out of.
#include <nanobind/stl/vector.h>

#include <vector>

#include "bindings.h"
#include "ranges.h"

namespace graphmill {

namespace {

Ranges ranges_of(const Ids& begins, const Ids& offsets) {
  require(length(offsets) == length(begins) + 1, "offsets must hold num_ranges + 1");
  return {begins.data(), offsets.data(), length(begins)};
}

void copy_ranges_py(const Floats& table, const Ids& begins, const Ids& offsets, Array<float, 2> out, int num_threads) {
  const Ranges ranges = ranges_of(begins, offsets);
  require(width(table) == width(out) && ranges_fit(ranges, length(table), length(out)), "ranges must lie in the table");
  nb::gil_scoped_release release;
  copy_ranges(table.data(), width(table) * static_cast<int64_t>(sizeof(float)), ranges, out.data(), num_threads);
}

using Bytes = Array<const uint8_t, 2>;

bool all_below(const Ids& rows, int64_t count) {
  bool inside = true;
  for (int64_t i = 0; i < length(rows); ++i)
    inside &= static_cast<uint64_t>(rows.data()[i]) < static_cast<uint64_t>(count);
  return inside;
}

void copy_rows_py(const Bytes& table, const Ids& rows, const Ids& places, Array<uint8_t, 2> out, int num_threads) {
  require(length(rows) == length(places) && width(table) == width(out), "rows and places, table and out must match");
  require(all_below(rows, length(table)) && all_below(places, length(out)), "rows and places must lie in their tables");
  nb::gil_scoped_release release;
  copy_rows(table.data(), width(table), rows.data(), places.data(), length(rows), out.data(), num_threads);
}

using AnyTable = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using AnyTaken = nb::ndarray<nb::c_contig, nb::device::cpu>;

template <class A>
int64_t bytes_of_row(const A& array) {
  int64_t bytes = (array.dtype().bits * array.dtype().lanes + 7) / 8;
  for (size_t dimension = 1; dimension < array.ndim(); ++dimension) bytes *= length(array, dimension);
  return bytes;
}

void take_rows_py(const std::vector<AnyTable>& tables, const std::vector<Ids>& ids, const std::vector<AnyTaken>& outs,
                  int num_threads) {
  require(tables.size() == ids.size() && tables.size() == outs.size(), "a table, ids and an output each");
  std::vector<RowsTaken> all;
  for (size_t i = 0; i < tables.size(); ++i) {
    require(tables[i].ndim() > 0 && outs[i].ndim() == tables[i].ndim(), "rows have the dimensions of their table");
    const int64_t row_bytes = bytes_of_row(tables[i]), count = length(ids[i]);
    require(length(outs[i]) == count && bytes_of_row(outs[i]) == row_bytes, "out must be [num_ids, …] like its table");
    all.push_back({static_cast<const char*>(tables[i].data()), length(tables[i]), row_bytes, ids[i].data(), count,
                   static_cast<char*>(outs[i].data())});
  }
  bool is_whole = true;
  {
    nb::gil_scoped_release release;
    is_whole = take_rows(all, num_threads);
  }
  if (!is_whole) throw nb::index_error("an id lies outside its table");
}

template <class Out>
void copy_ranges_shifted_py(const Locals& table, const Ids& begins, const Ids& offsets, const Ids& shifts,
                            Array<Out, 1> out, int num_threads) {
  const Ranges ranges = ranges_of(begins, offsets);
  require(length(shifts) == length(begins) && ranges_fit(ranges, length(table), length(out)),
          "ranges must lie in the table, and each have a shift");
  nb::gil_scoped_release release;
  copy_ranges_shifted(table.data(), ranges, shifts.data(), out.data(), num_threads);
}

}  // namespace

void bind_ranges(nb::module_& m) {
  m.def("copy_ranges", &copy_ranges_py, nb::arg("table"), nb::arg("begins"), nb::arg("offsets"),
        nb::arg("out").noconvert(), nb::arg("num_threads"));
  m.def("copy_rows", &copy_rows_py, nb::arg("table"), nb::arg("rows"), nb::arg("places"), nb::arg("out").noconvert(),
        nb::arg("num_threads"), "out[places[i]] = table[rows[i]], of rows of bytes.");
  m.def("take_rows", &take_rows_py, nb::arg("tables"), nb::arg("ids"), nb::arg("outs").noconvert(),
        nb::arg("num_threads"), "outs[k][i] = tables[k][ids[k][i]], of rows of any format.");
  m.def("copy_ranges_shifted", &copy_ranges_shifted_py<int32_t>, nb::arg("table"), nb::arg("begins"),
        nb::arg("offsets"), nb::arg("shifts"), nb::arg("out").noconvert(), nb::arg("num_threads"));
  m.def("copy_ranges_shifted", &copy_ranges_shifted_py<int64_t>, nb::arg("table"), nb::arg("begins"),
        nb::arg("offsets"), nb::arg("shifts"), nb::arg("out").noconvert(), nb::arg("num_threads"));
}

}  // namespace graphmill
