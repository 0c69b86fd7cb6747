// Rows by ids out of feature tables, and the keys that random draws of rows are made with.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "bindings.h"
#include "shared/random.h"

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

// Tables of one width and format, one under another: row r of a later table has the number of all rows before it + r.
// Nothing is copied; a gather is told where each row begins, in elements from the first table's first.
class RowStack {
 public:
  explicit RowStack(std::vector<AnyRows> tables) : tables_(std::move(tables)) {
    require(!tables_.empty(), "a stack has at least one table");
    first_ = matrix_of(tables_.front());
    int64_t end = 0;
    for (const AnyRows& table : tables_) {
      const Matrix rows = matrix_of(table);
      require(rows.type == first_.type && rows.num_columns == first_.num_columns,
              "tables of a stack must have one width and format");
      begins_.push_back((reinterpret_cast<intptr_t>(rows.data) - reinterpret_cast<intptr_t>(first_.data)) /
                            item_bytes() -
                        end * rows.num_columns);
      require(rows.num_rows == 0 || reinterpret_cast<intptr_t>(rows.data) % item_bytes() == 0, "rows must be aligned");
      ends_.push_back(end += rows.num_rows);
    }
    first_.id_step = 1;
  }

  const Matrix& matrix() const { return first_; }
  int64_t num_rows() const { return ends_.back(); }
  int64_t width() const { return first_.num_columns; }

  // Where each of `rows` begins, in elements.
  std::vector<int64_t> elements(const Ids& rows) const {
    const int64_t count = length(rows);
    std::vector<int64_t> found(count);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = rows.data()[i];
      require(static_cast<uint64_t>(row) < static_cast<uint64_t>(num_rows()), "a row lies outside the stack");
      size_t table = 0;
      while (row >= ends_[table]) ++table;
      found[i] = begins_[table] + row * width();
    }
    return found;
  }

  void copy(const Ids& rows, const AnyOut& out, int num_threads) const {
    require(has_shape(out, length(rows), width()) && row_type(out.dtype()) == first_.type,
            "out must be [num_rows, num_columns] in the format of the stack");
    const std::vector<int64_t> ids = elements(rows);
    nb::gil_scoped_release release;
    gather_rows(first_, ids.data(), length(rows), out.data(), first_.type, num_threads);
  }

 private:
  int64_t item_bytes() const { return first_.type == RowType::kFloat32 ? 4 : 2; }

  std::vector<AnyRows> tables_;  // kept alive
  Matrix first_{};
  std::vector<int64_t> ends_, begins_;
};

void gather_stacked_rows_py(const RowStack& stack, const Ids& rows, AnyOut out, int num_threads) {
  require(has_shape(out, length(rows), stack.width()), "out must be [num_ids, num_columns]");
  const std::vector<int64_t> ids = stack.elements(rows);
  nb::gil_scoped_release release;
  gather_rows(stack.matrix(), ids.data(), length(rows), out.data(), out_type(out.dtype()), num_threads);
}

void gather_stacked_self_and_mean_py(const RowStack& stack, const Ids& row_ids, const Ids& ids, const Ids& indptr,
                                     const Locals& indices, AnyOut out, int num_threads) {
  const Segments segments = segments_of(indptr, indices);
  require(length(row_ids) == segments.num_rows, "row_ids must be [num_rows]");
  require(has_shape(out, segments.num_rows, 2 * stack.width()), "out must be [num_rows, 2 * num_columns]");
  const std::vector<int64_t> own = stack.elements(row_ids), all = stack.elements(ids);
  nb::gil_scoped_release release;
  gather_self_and_mean(stack.matrix(), own.data(), all.data(), segments, out.data(), out_type(out.dtype()),
                       num_threads);
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
  nb::class_<RowStack>(m, "RowStack", "Tables of one width and format, one under another, without a copy.")
      .def(nb::init<std::vector<AnyRows>>(), nb::arg("tables"))
      .def("__len__", &RowStack::num_rows)
      .def("copy", &RowStack::copy, nb::arg("rows"), nb::arg("out").noconvert(), nb::arg("num_threads"),
           "out[i] = the stack's row rows[i].");
  m.def("gather_rows", &gather_stacked_rows_py, nb::arg("table"), nb::arg("ids"), nb::arg("out").noconvert(),
        nb::arg("num_threads"));
  m.def("gather_self_and_mean", &gather_stacked_self_and_mean_py, nb::arg("table"), nb::arg("row_ids"), nb::arg("ids"),
        nb::arg("indptr"), nb::arg("indices"), nb::arg("out").noconvert(), nb::arg("num_threads"));
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
