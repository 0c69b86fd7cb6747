// Sweeps over matrices of costs, in float32 and float64.
#include <nanobind/stl/optional.h>

#include "assignment_features.h"
#include "bindings.h"

namespace graphmill {

namespace {

using AnyCosts = nb::ndarray<nb::ro, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Offsets = Array<const double, 2>;

CostMatrices costs_of(const AnyCosts& costs, const std::optional<Offsets>& offsets) {
  const bool is_double = costs.dtype() == nb::dtype<double>();
  require(is_double || costs.dtype() == nb::dtype<float>(), "costs must be float32 or float64");
  require(!offsets || has_shape(*offsets, length(costs), width(costs)), "offsets must be [batch, rows]");
  return {costs.data(), is_double, data_or_null(offsets), length(costs), width(costs), length(costs, 2)};
}

template <class A>
bool has_shape3(const A& array, int64_t first, int64_t second, int64_t third) {
  return length(array) == first && width(array) == second && length(array, 2) == third;
}

void nearest_costs_py(const AnyCosts& costs, const Floats& v, Array<float, 3> row_values, Array<int32_t, 3> row_columns,
                      std::optional<Array<float, 3>> column_values, std::optional<Offsets> offsets, int num_threads) {
  const CostMatrices all = costs_of(costs, offsets);
  const int64_t count = length(row_values, 2);
  require(count >= 1 && count <= kMostNearest, "1 to 8 smallest costs can be asked for");
  require(has_shape(v, all.batch, all.columns), "v must be [batch, columns]");
  require(has_shape3(row_values, all.batch, all.rows, count) && has_shape3(row_columns, all.batch, all.rows, count),
          "row_values and row_columns must be [batch, rows, count]");
  require(!column_values || has_shape3(*column_values, all.batch, all.columns, count),
          "column_values must be [batch, columns, count]");
  nb::gil_scoped_release release;
  nearest_costs(all, v.data(), static_cast<int>(count), row_values.data(), row_columns.data(),
                data_or_null(column_values), num_threads);
}

void soften_costs_py(const AnyCosts& costs, const Floats& v, const FloatLine& epsilon, Array<float, 2> u,
                     Array<float, 2> column_sums, std::optional<Offsets> offsets, int num_threads) {
  const CostMatrices all = costs_of(costs, offsets);
  require(has_shape(v, all.batch, all.columns) && has_shape(column_sums, all.batch, all.columns),
          "v and column_sums must be [batch, columns]");
  require(has_shape(u, all.batch, all.rows), "u must be [batch, rows]");
  require(length(epsilon) == all.batch, "epsilon must be [batch]");
  for (int64_t which = 0; which < all.batch; ++which) require(epsilon.data()[which] > 0, "epsilon must be positive");
  nb::gil_scoped_release release;
  soften_costs(all, v.data(), epsilon.data(), u.data(), column_sums.data(), num_threads);
}

void row_minima_py(const AnyCosts& costs, Array<double, 2> minima, int num_threads) {
  const CostMatrices all = costs_of(costs, std::nullopt);
  require(has_shape(minima, all.batch, all.rows), "minima must be [batch, rows]");
  nb::gil_scoped_release release;
  row_minima(all, minima.data(), num_threads);
}

void reduce_costs_py(const AnyCosts& costs, Array<float, 3> out, std::optional<Offsets> offsets, int num_threads) {
  const CostMatrices all = costs_of(costs, offsets);
  require(has_shape3(out, all.batch, all.rows, all.columns), "out must be [batch, rows, columns]");
  nb::gil_scoped_release release;
  reduce_costs(all, out.data(), num_threads);
}

}  // namespace

void bind_assignment_features(nb::module_& m) {
  using namespace nb::literals;
  m.def("nearest_costs", &nearest_costs_py, "costs"_a, "v"_a, "row_values"_a.noconvert(), "row_columns"_a.noconvert(),
        "column_values"_a.noconvert().none(), "offsets"_a.none() = nb::none(), "num_threads"_a = 1,
        "The smallest cost - offset - v of every row with their columns, and, less the row's smallest, of every "
        "column.");
  m.def("soften_costs", &soften_costs_py, "costs"_a, "v"_a, "epsilon"_a, "u"_a.noconvert(), "column_sums"_a.noconvert(),
        "offsets"_a.none() = nb::none(), "num_threads"_a = 1,
        "u becomes the softened minimum of cost - offset - v over each row; column_sums: what each column then holds.");
  m.def("row_minima", &row_minima_py, "costs"_a, "minima"_a.noconvert(), "num_threads"_a = 1,
        "The smallest cost of every row.");
  m.def("reduce_costs", &reduce_costs_py, "costs"_a, "out"_a.noconvert(), "offsets"_a.none() = nb::none(),
        "num_threads"_a = 1, "cost - offset, in float32.");
}

}  // namespace graphmill
