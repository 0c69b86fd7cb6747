// Rows by ids out of feature tables, and the keys that random draws of rows are made with.
#include <nanobind/stl/optional.h>

#include "bindings.h"
#include "random.h"

namespace graphmill {

namespace {

void gather_rows_py(const AnyRows& table, const Ids& ids, AnyOut out, int num_threads) {
  require(has_shape(out, length(ids), width(table)), "out must be [num_ids, num_columns]");
  nb::gil_scoped_release release;
  gather_rows(matrix_of(table), ids.data(), length(ids), out.data(), out_type(out.dtype()), num_threads);
}

void gather_self_and_mean_py(const AnyRows& table, std::optional<Ids> row_ids, std::optional<Ids> ids,
                             const Ids& indptr, const Locals& indices, AnyOut out, int num_threads) {
  const Segments segments = segments_of(indptr, indices);
  require(!row_ids || length(*row_ids) == segments.num_rows, "row_ids must be [num_rows]");
  require(has_shape(out, segments.num_rows, 2 * width(table)), "out must be [num_rows, 2 * num_columns]");
  nb::gil_scoped_release release;
  gather_self_and_mean(matrix_of(table), data_or_null(row_ids), data_or_null(ids), segments, out.data(),
                       out_type(out.dtype()), num_threads);
}

void gather_sparse_rows_py(const Ids& indptr, const Locals& indices, const FloatLine& values, const Ids& ids,
                           const Ids& out_indptr, Array<int32_t, 1> out_indices, Array<float, 1> out_values,
                           int num_threads) {
  const SparseMatrix table = sparse_of(indptr, indices, values);
  require(length(out_indptr) == length(ids) + 1 && length(out_indices) == length(out_values),
          "out_indptr must hold num_ids + 1 offsets");
  nb::gil_scoped_release release;
  gather_sparse_rows(table, ids.data(), length(ids), out_indptr.data(), out_indices.data(), out_values.data(),
                     num_threads);
}

void keys_of(uint64_t key, const Ids& ids, Array<uint64_t, 1> out) {
  require(length(out) == length(ids), "out must be as long as ids");
  for (int64_t i = 0; i < length(ids); ++i) out.data()[i] = subkey(key, static_cast<uint64_t>(ids.data()[i]));
}

}  // namespace

void bind_gathering(nb::module_& m) {
  m.def("gather_rows", &gather_rows_py, nb::arg("table"), nb::arg("ids"), nb::arg("out").noconvert(),
        nb::arg("num_threads"));
  m.def("gather_self_and_mean", &gather_self_and_mean_py, nb::arg("table"), nb::arg("row_ids").none(),
        nb::arg("ids").none(), nb::arg("indptr"), nb::arg("indices"), nb::arg("out").noconvert(),
        nb::arg("num_threads"));
  m.def("gather_sparse_rows", &gather_sparse_rows_py, nb::arg("indptr"), nb::arg("indices"), nb::arg("values"),
        nb::arg("ids"), nb::arg("out_indptr"), nb::arg("out_indices").noconvert(), nb::arg("out_values").noconvert(),
        nb::arg("num_threads"));
  m.def("keys_of", &keys_of, nb::arg("key"), nb::arg("ids"), nb::arg("out").noconvert());
  m.def("subkey", &subkey, nb::arg("key"), nb::arg("coordinate"), "A key for one more coordinate below `key`.");
}

}  // namespace graphmill
