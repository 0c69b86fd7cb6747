// Sums along the edges of a graph.
#include "bindings.h"
#include "propagation.h"

namespace graphmill {

namespace {

void sum_by_source_py(const Ids& indptr, const AnyIds& indices, const Array<const double, 1>& values,
                      Array<double, 1> sums, int num_threads) {
  require(length(indptr) >= 1 && indptr.data()[0] == 0, "indptr must hold num_rows + 1 offsets from 0");
  const int64_t num_rows = length(indptr) - 1;
  require(indptr.data()[num_rows] == length(indices), "indptr must end at the number of entries");
  require(length(values) == num_rows, "there must be a value for each row");
  require(static_cast<nb::dlpack::dtype_code>(indices.dtype().code) == nb::dlpack::dtype_code::Int,
          "indices must be int32 or int64");
  const bool is_narrow = indices.dtype().bits == 32;
  nb::gil_scoped_release release;
  for (int64_t row = 0; row < num_rows; ++row)
    require(indptr.data()[row] <= indptr.data()[row + 1], "indptr must not fall");
  if (is_narrow)
    sum_by_source(indptr.data(), static_cast<const int32_t*>(indices.data()), num_rows, length(sums), values.data(),
                  sums.data(), num_threads);
  else
    sum_by_source(indptr.data(), static_cast<const int64_t*>(indices.data()), num_rows, length(sums), values.data(),
                  sums.data(), num_threads);
}

}  // namespace

void bind_propagation(nb::module_& m) {
  m.def("sum_by_source", &sum_by_source_py, nb::arg("indptr"), nb::arg("indices"), nb::arg("values"),
        nb::arg("sums").noconvert(), nb::arg("num_threads") = 1);
}

}  // namespace graphmill
