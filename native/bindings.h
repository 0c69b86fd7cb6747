// What the bindings of every subject share: array types, checks of shapes, conversions. numpy arrays and CPU tensors
// come in, results go into arrays that the caller owns, and the GIL is released while the work is done. What is written
// to is never converted (noconvert): the result would go into a copy that is discarded.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>

#include "operators.h"

namespace graphmill {

namespace nb = nanobind;

template <class T, size_t Dimensions>
using Array = nb::ndarray<T, nb::ndim<Dimensions>, nb::c_contig, nb::device::cpu>;
using Ids = Array<const int64_t, 1>;
using Locals = Array<const int32_t, 1>;
using Floats = Array<const float, 2>;
using FloatLine = Array<const float, 1>;
using Doubles = Array<const double, 1>;
using Keys = Array<const uint64_t, 1>;
using AnyIds = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using AnyRows = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using AnyOut = nb::ndarray<nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void bind_sampling(nb::module_& m);
void bind_typed_sampling(nb::module_& m);
void bind_columns(nb::module_& m);
void bind_rows(nb::module_& m);
void bind_gathering(nb::module_& m);
void bind_ranges(nb::module_& m);
void bind_segments(nb::module_& m);
void bind_products(nb::module_& m);
void bind_norms(nb::module_& m);
void bind_recurrent(nb::module_& m);
void bind_edge_groups(nb::module_& m);
void bind_attention(nb::module_& m);
void bind_edges(nb::module_& m);
void bind_propagation(nb::module_& m);
void bind_parts(nb::module_& m);
void bind_captures(nb::module_& m);
void bind_ranking(nb::module_& m);
void bind_assignment(nb::module_& m);
void bind_assignment_features(nb::module_& m);

inline void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

template <class A>
int64_t length(const A& array, size_t dimension = 0) {
  return static_cast<int64_t>(array.shape(dimension));
}

inline bool is_narrow(const AnyIds& ids) {
  require(static_cast<nb::dlpack::dtype_code>(ids.dtype().code) == nb::dlpack::dtype_code::Int &&
              (ids.dtype().bits == 32 || ids.dtype().bits == 64),
          "ids must be int32 or int64");
  return ids.dtype().bits == 32;
}

// Offsets of rows that hold `num_edges` in all.
inline void check_columns(const Ids& indptr, int64_t num_edges) {
  require(length(indptr) >= 1 && indptr.data()[0] == 0 && indptr.data()[length(indptr) - 1] == num_edges,
          "indptr must start at 0 and end at the number of edges");
  for (int64_t i = 1; i < length(indptr); ++i)
    require(indptr.data()[i - 1] <= indptr.data()[i], "indptr must not fall");
}

// Memory that `owner` holds as a numpy array that keeps it alive.
template <class T, class Owner>
nb::ndarray<nb::numpy, T, nb::ndim<1>> view(const std::shared_ptr<Owner>& owner, T* data, int64_t count) {
  auto* keeper = new std::shared_ptr<Owner>(owner);
  nb::capsule capsule(keeper, [](void* p) noexcept { delete static_cast<std::shared_ptr<Owner>*>(p); });
  static T nothing{};
  return nb::ndarray<nb::numpy, T, nb::ndim<1>>(count ? data : &nothing, {static_cast<size_t>(count)}, capsule);
}

template <class A>
int64_t width(const A& array) {
  return length(array, 1);
}

template <class A>
bool has_shape(const A& array, int64_t num_rows, int64_t num_columns) {
  return length(array) == num_rows && width(array) == num_columns;
}

template <class A>
auto* data_or_null(const std::optional<A>& array) {
  return array ? array->data() : nullptr;
}

inline RowType row_type(nb::dlpack::dtype type) {
  const auto code = static_cast<nb::dlpack::dtype_code>(type.code);
  if (code == nb::dlpack::dtype_code::Float && type.bits == 32) return RowType::kFloat32;
  if (code == nb::dlpack::dtype_code::Float && type.bits == 16) return RowType::kFloat16;
  if (code == nb::dlpack::dtype_code::Bfloat || (code == nb::dlpack::dtype_code::UInt && type.bits == 16))
    return RowType::kBfloat16;
  throw std::invalid_argument("rows must be float32, float16, bfloat16, or bfloat16 held as uint16");
}

// What gathers write: sums are made in float32 and stored as that or rounded to bfloat16.
inline RowType out_type(nb::dlpack::dtype type) {
  const RowType out = row_type(type);
  if (out == RowType::kFloat16) throw std::invalid_argument("out must be float32 or bfloat16");
  return out;
}

inline Matrix matrix_of(const AnyRows& rows) {
  return {rows.data(), row_type(rows.dtype()), length(rows), width(rows)};
}

inline Segments segments_of(const Ids& indptr, const Locals& indices) {
  require(length(indptr) >= 1, "indptr must hold num_rows + 1 offsets");
  const int64_t num_rows = length(indptr) - 1;
  require(indptr.data()[num_rows] <= length(indices), "indptr ends past the indices");
  return {indptr.data(), indices.data(), num_rows};
}

inline SparseMatrix sparse_of(const Ids& indptr, const Locals& indices, const FloatLine& values) {
  require(length(indices) == length(values), "indices and values differ in length");
  const Segments rows = segments_of(indptr, indices);
  return {rows.indptr, rows.indices, values.data(), rows.num_rows};
}

// Dropout in integers: a 32-bit draw below the threshold drops the value.
inline uint32_t threshold_of(double p) {
  require(p >= 0 && p < 1, "a dropout probability lies in [0, 1)");
  const long threshold = std::lround(std::ldexp(p, 32));
  return static_cast<uint32_t>(threshold > 0xffffffffl ? 0xffffffffl : threshold);
}

inline float scale_of(double p) { return static_cast<float>(1.0 / (1.0 - p)); }

}  // namespace graphmill
