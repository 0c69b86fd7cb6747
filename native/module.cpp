// The Python face of the core: numpy arrays and CPU tensors in, results into arrays that the caller owns. The GIL is released.
// What is written to is never converted: the result would go into a copy that nobody sees.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <malloc.h>

#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <variant>

#include "dcgru.h"
#include "operators.h"
#include "random.h"
#include "sampler.h"

namespace nb = nanobind;
using namespace graphmill;

namespace {

template <class T, size_t Dimensions>
using Array = nb::ndarray<T, nb::ndim<Dimensions>, nb::c_contig, nb::device::cpu>;
using Ids = Array<const int64_t, 1>;
using Locals = Array<const int32_t, 1>;
using Floats = Array<const float, 2>;
using Keys = Array<const uint64_t, 1>;
using AnyRows = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using AnyOut = nb::ndarray<nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

RowType row_type(nb::dlpack::dtype type) {
  const auto code = static_cast<nb::dlpack::dtype_code>(type.code);
  if (code == nb::dlpack::dtype_code::Float && type.bits == 32) return RowType::kFloat32;
  if (code == nb::dlpack::dtype_code::Float && type.bits == 16) return RowType::kFloat16;
  if (code == nb::dlpack::dtype_code::Bfloat || (code == nb::dlpack::dtype_code::UInt && type.bits == 16)) return RowType::kBfloat16;
  throw std::invalid_argument("rows must be float32, float16, bfloat16, or bfloat16 held as uint16");
}

// What gathers write: sums are made in float32 and stored as that or rounded to bfloat16.
RowType out_type(nb::dlpack::dtype type) {
  const RowType out = row_type(type);
  if (out == RowType::kFloat16) throw std::invalid_argument("out must be float32 or bfloat16");
  return out;
}

Segments segments_of(const Ids& indptr, const Locals& indices) {
  require(indptr.shape(0) >= 1, "indptr must hold num_rows + 1 offsets");
  const auto num_rows = static_cast<int64_t>(indptr.shape(0)) - 1;
  require(indptr.data()[num_rows] <= static_cast<int64_t>(indices.shape(0)), "indptr ends past the indices");
  return {indptr.data(), indices.data(), num_rows};
}

SparseMatrix sparse_of(const Ids& indptr, const Locals& indices, const Array<const float, 1>& values) {
  require(indices.shape(0) == values.shape(0), "indices and values differ in length");
  const Segments rows = segments_of(indptr, indices);
  return {rows.indptr, rows.indices, values.data(), rows.num_rows};
}

// Dropout in integers: a 32-bit draw below the threshold drops the value.
uint32_t threshold_of(double p) {
  require(p >= 0 && p < 1, "a dropout probability lies in [0, 1)");
  return static_cast<uint32_t>(std::lround(std::ldexp(p, 32)) > 0xffffffffl ? 0xffffffffl : std::lround(std::ldexp(p, 32)));
}

// Sampling over int32 or int64 column ids behind one class; keeps the arrays alive.
class NeighborSampler {
 public:
  NeighborSampler(Ids indptr, nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu> indices)
      : indptr_(indptr), indices_(indices) {
    require(indptr.shape(0) >= 2, "indptr must hold num_nodes + 1 offsets of at least one node");
    const auto num_nodes = static_cast<int64_t>(indptr.shape(0)) - 1, num_edges = static_cast<int64_t>(indices.shape(0));
    require(indptr.data()[0] == 0 && indptr.data()[num_nodes] == num_edges, "indptr must start at 0 and end at the number of edges");
    require(static_cast<nb::dlpack::dtype_code>(indices.dtype().code) == nb::dlpack::dtype_code::Int, "indices must be int32 or int64");
    if (indices.dtype().bits == 32)
      sampler_.emplace<Sampler<int32_t>>(indptr.data(), static_cast<const int32_t*>(indices.data()), num_nodes, num_edges);
    else
      sampler_.emplace<Sampler<int64_t>>(indptr.data(), static_cast<const int64_t*>(indices.data()), num_nodes, num_edges);
  }

  std::shared_ptr<Neighbourhood> sample(const Ids& seeds, const std::vector<int64_t>& fanouts, uint64_t key, bool resample,
                                        bool with_edge_ids, int num_threads) {
    nb::gil_scoped_release release;
    return std::visit(
        [&](auto& sampler) -> std::shared_ptr<Neighbourhood> {
          if constexpr (std::is_same_v<std::decay_t<decltype(sampler)>, std::monostate>) throw std::logic_error("no graph");
          else return sampler.sample(seeds.data(), static_cast<int64_t>(seeds.shape(0)), fanouts, key, resample, with_edge_ids, num_threads);
        },
        sampler_);
  }

 private:
  Ids indptr_;
  nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu> indices_;
  std::variant<std::monostate, Sampler<int32_t>, Sampler<int64_t>> sampler_;
};

// A view of a result's memory that keeps the result alive; when the last view dies the memory serves the next batch.
template <class T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> view(const std::shared_ptr<Neighbourhood>& owner, T* data, int64_t count) {
  auto* keeper = new std::shared_ptr<Neighbourhood>(owner);
  nb::capsule capsule(keeper, [](void* p) noexcept { delete static_cast<std::shared_ptr<Neighbourhood>*>(p); });
  static T nothing{};
  return nb::ndarray<nb::numpy, T, nb::ndim<1>>(count ? data : &nothing, {static_cast<size_t>(count)}, capsule);
}

void bind_sampler(nb::module_& m) {
  using Shared = std::shared_ptr<Neighbourhood>;
  nb::class_<Neighbourhood>(m, "Neighbourhood", "One sampled neighbourhood; its arrays are views of reused memory.")
      .def_prop_ro("node_ids", [](const Shared& n) { return view(n, n->node_ids.data(), n->num_nodes); }, nb::rv_policy::reference)
      .def_prop_ro("indptr", [](const Shared& n) { return view(n, n->indptr.data(), n->num_rows + 1); }, nb::rv_policy::reference)
      .def_prop_ro("indices", [](const Shared& n) { return view(n, n->indices.data(), n->num_edges); }, nb::rv_policy::reference)
      .def_prop_ro("edge_ids", [](const Shared& n) { return view(n, n->edge_ids.data(), n->edge_ids.data() ? n->num_edges : 0); }, nb::rv_policy::reference)
      .def_prop_ro("num_nodes_per_hop", [](const Shared& n) { return n->nodes_per_hop; })
      .def_prop_ro("num_edges_per_hop", [](const Shared& n) { return n->edges_per_hop; })
      .def_prop_ro("num_rows_per_hop", [](const Shared& n) { return n->rows_per_hop; });
  nb::class_<NeighborSampler>(m, "NeighborSampler")
      .def(nb::init<Ids, nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>>(), nb::arg("indptr"), nb::arg("indices"))
      .def("sample", &NeighborSampler::sample, nb::arg("seeds"), nb::arg("fanouts"), nb::arg("key"), nb::kw_only(),
           nb::arg("resample") = false, nb::arg("with_edge_ids") = false, nb::arg("num_threads") = 1);
}

void bind_gathers(nb::module_& m) {
  m.def("gather_rows", [](const AnyRows& table, const Ids& ids, AnyOut out, int num_threads) {
    require(out.shape(0) == ids.shape(0) && out.shape(1) == table.shape(1), "out must be [num_ids, num_columns]");
    nb::gil_scoped_release release;
    gather_rows({table.data(), row_type(table.dtype()), static_cast<int64_t>(table.shape(0)), static_cast<int64_t>(table.shape(1))},
                ids.data(), static_cast<int64_t>(ids.shape(0)), out.data(), out_type(out.dtype()), num_threads);
  }, nb::arg("table"), nb::arg("ids"), nb::arg("out").noconvert(), nb::arg("num_threads"));
  m.def("gather_self_and_mean", [](const AnyRows& table, std::optional<Ids> row_ids, std::optional<Ids> ids, const Ids& indptr,
                                   const Locals& indices, AnyOut out, int num_threads) {
    const Segments segments = segments_of(indptr, indices);
    require(!row_ids || static_cast<int64_t>(row_ids->shape(0)) == segments.num_rows, "row_ids must be [num_rows]");
    require(static_cast<int64_t>(out.shape(0)) == segments.num_rows && out.shape(1) == 2 * table.shape(1), "out must be [num_rows, 2 * num_columns]");
    nb::gil_scoped_release release;
    gather_self_and_mean({table.data(), row_type(table.dtype()), static_cast<int64_t>(table.shape(0)), static_cast<int64_t>(table.shape(1))},
                         row_ids ? row_ids->data() : nullptr, ids ? ids->data() : nullptr, segments, out.data(), out_type(out.dtype()), num_threads);
  }, nb::arg("table"), nb::arg("row_ids").none(), nb::arg("ids").none(), nb::arg("indptr"), nb::arg("indices"), nb::arg("out").noconvert(), nb::arg("num_threads"));
  m.def("gather_sparse_rows", [](const Ids& indptr, const Locals& indices, const Array<const float, 1>& values, const Ids& ids,
                                 const Ids& out_indptr, Array<int32_t, 1> out_indices, Array<float, 1> out_values, int num_threads) {
    const SparseMatrix table = sparse_of(indptr, indices, values);
    require(out_indptr.shape(0) == ids.shape(0) + 1 && out_indices.shape(0) == out_values.shape(0), "out_indptr must hold num_ids + 1 offsets");
    nb::gil_scoped_release release;
    gather_sparse_rows(table, ids.data(), static_cast<int64_t>(ids.shape(0)), out_indptr.data(), out_indices.data(), out_values.data(), num_threads);
  }, nb::arg("indptr"), nb::arg("indices"), nb::arg("values"), nb::arg("ids"), nb::arg("out_indptr"), nb::arg("out_indices").noconvert(), nb::arg("out_values").noconvert(), nb::arg("num_threads"));
  m.def("keys_of", [](uint64_t key, const Ids& ids, Array<uint64_t, 1> out) {
    require(out.shape(0) == ids.shape(0), "out must be as long as ids");
    for (size_t i = 0; i < ids.shape(0); ++i) out.data()[i] = subkey(key, static_cast<uint64_t>(ids.data()[i]));
  }, nb::arg("key"), nb::arg("ids"), nb::arg("out").noconvert());
  m.def("subkey", &subkey, nb::arg("key"), nb::arg("coordinate"), "A key for one more coordinate below `key`.");
}

void bind_segments(nb::module_& m) {
  m.def("segment_mean", [](const Floats& x, const Ids& indptr, const Locals& indices, Array<float, 2> out, int num_threads) {
    const Segments segments = segments_of(indptr, indices);
    require(static_cast<int64_t>(out.shape(0)) == segments.num_rows && out.shape(1) == x.shape(1), "out must be [num_rows, num_columns]");
    nb::gil_scoped_release release;
    segment_mean(x.data(), static_cast<int64_t>(x.shape(1)), segments, out.data(), num_threads);
  }, nb::arg("x"), nb::arg("indptr"), nb::arg("indices"), nb::arg("out").noconvert(), nb::arg("num_threads"));
  m.def("segment_mean_backward", [](const Floats& grad_out, const Ids& indptr, const Locals& indices, Array<float, 2> grad_x, int num_threads) {
    const Segments segments = segments_of(indptr, indices);
    require(static_cast<int64_t>(grad_out.shape(0)) == segments.num_rows && grad_out.shape(1) == grad_x.shape(1), "grad_out must be [num_rows, num_columns]");
    nb::gil_scoped_release release;
    segment_mean_backward(grad_out.data(), static_cast<int64_t>(grad_out.shape(1)), segments, grad_x.data(), static_cast<int64_t>(grad_x.shape(0)), num_threads);
  }, nb::arg("grad_out"), nb::arg("indptr"), nb::arg("indices"), nb::arg("grad_x").noconvert(), nb::arg("num_threads"));
  m.def("self_and_mean_backward", [](const Floats& grad_out, const Ids& indptr, const Locals& indices, Array<float, 2> grad_x, int num_threads) {
    const Segments segments = segments_of(indptr, indices);
    require(static_cast<int64_t>(grad_out.shape(0)) == segments.num_rows && grad_out.shape(1) == 2 * grad_x.shape(1), "grad_out must be [num_rows, 2 * num_columns]");
    require(grad_x.shape(0) >= grad_out.shape(0), "grad_x must hold the rows of grad_out");
    nb::gil_scoped_release release;
    self_and_mean_backward(grad_out.data(), static_cast<int64_t>(grad_x.shape(1)), segments, grad_x.data(), static_cast<int64_t>(grad_x.shape(0)), num_threads);
  }, nb::arg("grad_out"), nb::arg("indptr"), nb::arg("indices"), nb::arg("grad_x").noconvert(), nb::arg("num_threads"));
  m.def("sparse_multiply", [](const Ids& indptr, const Locals& indices, const Array<const float, 1>& values, const Floats& w, Array<float, 2> out, int num_threads) {
    const SparseMatrix x = sparse_of(indptr, indices, values);
    require(static_cast<int64_t>(out.shape(0)) == x.num_rows && out.shape(1) == w.shape(1), "out must be [num_rows, n]");
    nb::gil_scoped_release release;
    sparse_multiply(x, w.data(), static_cast<int64_t>(w.shape(1)), out.data(), num_threads);
  }, nb::arg("indptr"), nb::arg("indices"), nb::arg("values"), nb::arg("w"), nb::arg("out").noconvert(), nb::arg("num_threads"));
  m.def("sparse_multiply_backward", [](const Ids& indptr, const Locals& indices, const Array<const float, 1>& values, const Floats& grad_out, Array<float, 2> grad_w, int num_threads) {
    const SparseMatrix x = sparse_of(indptr, indices, values);
    require(static_cast<int64_t>(grad_out.shape(0)) == x.num_rows && grad_out.shape(1) == grad_w.shape(1), "grad_out must be [num_rows, n]");
    nb::gil_scoped_release release;
    sparse_multiply_backward(x, grad_out.data(), static_cast<int64_t>(grad_w.shape(1)), grad_w.data(), static_cast<int64_t>(grad_w.shape(0)), num_threads);
  }, nb::arg("indptr"), nb::arg("indices"), nb::arg("values"), nb::arg("grad_out"), nb::arg("grad_w").noconvert(), nb::arg("num_threads"));
}

void bind_products(nb::module_& m) {
  m.def("linear",
        [](const Floats& a, const Floats& w, std::optional<Array<const float, 1>> bias, Array<float, 2> out, bool relu,
           std::optional<Keys> row_keys, double p, int num_threads) {
          require(a.shape(1) == w.shape(1), "a [m, k] and w [n, k] differ in k");
          require(out.shape(0) == a.shape(0) && out.shape(1) == w.shape(0), "out must be [m, n]");
          require(!bias || bias->shape(0) == w.shape(0), "bias must be [n]");
          require(!row_keys || row_keys->shape(0) == a.shape(0), "row_keys must be [m]");
          const Epilogue epilogue{bias ? bias->data() : nullptr, row_keys ? row_keys->data() : nullptr, threshold_of(p),
                                  static_cast<float>(1.0 / (1.0 - p)), relu};
          nb::gil_scoped_release release;
          linear(a.data(), static_cast<int64_t>(a.shape(0)), static_cast<int64_t>(a.shape(1)), w.data(), static_cast<int64_t>(w.shape(0)), epilogue, out.data(), num_threads);
        },
        nb::arg("a"), nb::arg("w"), nb::arg("bias").none(), nb::arg("out").noconvert(), nb::arg("relu"), nb::arg("row_keys").none(), nb::arg("p"), nb::arg("num_threads"));
  m.def("linear_backward",
        [](const Floats& grad_out, std::optional<Floats> out, double p, const AnyRows& a, Array<float, 2> dw, Array<float, 1> db, int num_threads) {
          const Matrix rows{a.data(), row_type(a.dtype()), static_cast<int64_t>(a.shape(0)), static_cast<int64_t>(a.shape(1))};
          require(grad_out.shape(0) == a.shape(0) && dw.shape(0) == grad_out.shape(1) && dw.shape(1) == a.shape(1), "dw must be [n, k] for grad_out [m, n] and a [m, k]");
          require(!out || (out->shape(0) == grad_out.shape(0) && out->shape(1) == grad_out.shape(1)), "out must be [m, n]");
          require(out || rows.type == RowType::kFloat32, "a must be float32 where there is no activation");
          require(db.shape(0) == grad_out.shape(1), "db must be [n]");
          nb::gil_scoped_release release;
          linear_backward(grad_out.data(), out ? out->data() : nullptr, static_cast<float>(1.0 / (1.0 - p)), rows,
                          static_cast<int64_t>(grad_out.shape(1)), dw.data(), db.data(), num_threads);
        },
        nb::arg("grad_out"), nb::arg("out").none(), nb::arg("p"), nb::arg("a"), nb::arg("dw").noconvert(), nb::arg("db").noconvert(), nb::arg("num_threads"));
  m.def("relu_dropout", [](const Floats& x, const Keys& row_keys, double p, Array<float, 2> out, int num_threads) {
    require(row_keys.shape(0) == x.shape(0) && out.shape(0) == x.shape(0) && out.shape(1) == x.shape(1), "row_keys must be [m], out [m, n]");
    nb::gil_scoped_release release;
    relu_dropout(x.data(), static_cast<int64_t>(x.shape(0)), static_cast<int64_t>(x.shape(1)), row_keys.data(), threshold_of(p), static_cast<float>(1.0 / (1.0 - p)), out.data(), num_threads);
  }, nb::arg("x"), nb::arg("row_keys"), nb::arg("p"), nb::arg("out").noconvert(), nb::arg("num_threads"));
  m.def("relu_dropout_backward", [](const Floats& grad_out, const Floats& out, double p, Array<float, 2> grad_in, int num_threads) {
    require(grad_out.shape(0) == out.shape(0) && grad_out.shape(1) == out.shape(1), "grad_out and out differ in shape");
    nb::gil_scoped_release release;
    relu_dropout_backward(grad_out.data(), out.data(), static_cast<int64_t>(out.shape(0) * out.shape(1)), static_cast<float>(1.0 / (1.0 - p)), grad_in.data(), num_threads);
  }, nb::arg("grad_out"), nb::arg("out"), nb::arg("p"), nb::arg("grad_in").noconvert(), nb::arg("num_threads"));
}

void bind_recurrent(nb::module_& m) {
  nb::class_<Walks>(m, "Walks", "The random walks of a graph and how many steps of each a diffusion convolution takes.")
      .def("__init__", [](Walks* self, const Ids& indptr, const Locals& indices, const Array<const float, 1>& values, int64_t num_nodes, int64_t num_steps) {
        const SparseMatrix stacked = sparse_of(indptr, indices, values);
        require(num_nodes >= 1 && num_steps >= 1, "a walk has nodes and steps");
        require(stacked.num_rows % num_nodes == 0, "indptr must hold num_walks * num_nodes + 1 offsets");
        require(stacked.indptr[0] == 0 && stacked.indptr[stacked.num_rows] == static_cast<int64_t>(indices.shape(0)), "indptr must start at 0 and end at the number of values");
        for (int64_t row = 0; row < stacked.num_rows; ++row) require(stacked.indptr[row] <= stacked.indptr[row + 1], "indptr must not fall");
        for (size_t i = 0; i < indices.shape(0); ++i) require(indices.data()[i] >= 0 && indices.data()[i] < num_nodes, "an index is no node");
        new (self) Walks({stacked.indptr, stacked.indices, stacked.values, stacked.num_rows}, num_nodes, num_steps);
      }, nb::arg("indptr"), nb::arg("indices"), nb::arg("values"), nb::arg("num_nodes"), nb::arg("num_steps"))
      .def_prop_ro("num_slots", &Walks::num_slots);
  nb::class_<DcgruWeights>(m, "DcgruWeights", "The weights of a DCGRU cell, packed for the products of all steps of a sequence.")
      .def("__init__", [](DcgruWeights* self, const Floats& gate_weight, const Array<const float, 1>& gate_bias, const Floats& candidate_weight, const Array<const float, 1>& candidate_bias, int64_t num_slots) {
        const auto units = static_cast<int64_t>(candidate_weight.shape(0)), k = static_cast<int64_t>(candidate_weight.shape(1));
        require(num_slots >= 1 && k % num_slots == 0 && k / num_slots > units, "weights must have num_slots * (units + channels) columns");
        require(static_cast<int64_t>(gate_weight.shape(0)) == 2 * units && static_cast<int64_t>(gate_weight.shape(1)) == k, "gate_weight must be [2 * units, columns]");
        require(static_cast<int64_t>(gate_bias.shape(0)) == 2 * units && static_cast<int64_t>(candidate_bias.shape(0)) == units, "biases must be [2 * units] and [units]");
        new (self) DcgruWeights(gate_weight.data(), gate_bias.data(), candidate_weight.data(), candidate_bias.data(), num_slots, k / num_slots - units, units);
      }, nb::arg("gate_weight"), nb::arg("gate_bias"), nb::arg("candidate_weight"), nb::arg("candidate_bias"), nb::arg("num_slots"));
  const auto check = [](const Walks& walks, const DcgruWeights& w, const Floats& x, const Floats& h, const Array<float, 2>& gates, const Array<float, 2>& candidate) {
    const auto rows = static_cast<int64_t>(h.shape(0));
    require(walks.num_slots() == w.num_slots, "the weights are for another number of slots");
    require(rows % walks.num_nodes == 0, "rows must be whole samples");
    require(static_cast<int64_t>(x.shape(0)) == rows && static_cast<int64_t>(x.shape(1)) == w.channels, "x must be [rows, channels]");
    require(static_cast<int64_t>(h.shape(1)) == w.units, "h must be [rows, units]");
    require(static_cast<int64_t>(gates.shape(0)) == rows && static_cast<int64_t>(gates.shape(1)) == 2 * w.units, "gates must be [rows, 2 * units]");
    require(static_cast<int64_t>(candidate.shape(0)) == rows && static_cast<int64_t>(candidate.shape(1)) == w.units, "candidate must be [rows, units]");
  };
  m.def("dcgru_forward", [check](const Walks& walks, const DcgruWeights& w, const Floats& x, const Floats& h, Array<float, 2> gates, Array<float, 2> candidate, Array<float, 2> new_h, int num_threads) {
    check(walks, w, x, h, gates, candidate);
    require(new_h.shape(0) == h.shape(0) && new_h.shape(1) == h.shape(1), "new_h must be [rows, units]");
    const DcgruState state{static_cast<int64_t>(h.shape(0)) / walks.num_nodes, x.data(), h.data(), gates.data(), candidate.data()};
    nb::gil_scoped_release release;
    dcgru_forward(walks, w, state, new_h.data(), num_threads);
  }, nb::arg("walks"), nb::arg("weights"), nb::arg("x"), nb::arg("h"), nb::arg("gates").noconvert(), nb::arg("candidate").noconvert(), nb::arg("new_h").noconvert(), nb::arg("num_threads"));
  m.def("dcgru_backward", [check](const Walks& walks, const DcgruWeights& w, const Floats& x, const Floats& h, Array<float, 2> gates, Array<float, 2> candidate, const Floats& grad_new,
                                  Array<float, 2> grad_h, std::optional<Array<float, 2>> grad_x, Array<float, 2> grad_gate_weight, Array<float, 1> grad_gate_bias,
                                  Array<float, 2> grad_candidate_weight, Array<float, 1> grad_candidate_bias, int num_threads) {
    check(walks, w, x, h, gates, candidate);
    const auto k = static_cast<size_t>(w.num_slots * (w.units + w.channels)), units = static_cast<size_t>(w.units);
    require(grad_new.shape(0) == h.shape(0) && grad_new.shape(1) == h.shape(1), "grad_new must be [rows, units]");
    require(grad_h.shape(0) == h.shape(0) && grad_h.shape(1) == h.shape(1), "grad_h must be [rows, units]");
    require(!grad_x || (grad_x->shape(0) == x.shape(0) && grad_x->shape(1) == x.shape(1)), "grad_x must be [rows, channels]");
    require(grad_gate_weight.shape(0) == 2 * units && grad_gate_weight.shape(1) == k && grad_candidate_weight.shape(0) == units && grad_candidate_weight.shape(1) == k, "gradients of weights have their shapes");
    require(grad_gate_bias.shape(0) == 2 * units && grad_candidate_bias.shape(0) == units, "gradients of biases have their shapes");
    const DcgruState state{static_cast<int64_t>(h.shape(0)) / walks.num_nodes, x.data(), h.data(), gates.data(), candidate.data()};
    const DcgruGrads grads{grad_new.data(), grad_h.data(), grad_x ? grad_x->data() : nullptr, grad_gate_weight.data(), grad_gate_bias.data(), grad_candidate_weight.data(), grad_candidate_bias.data()};
    nb::gil_scoped_release release;
    dcgru_backward(walks, w, state, grads, num_threads);
  }, nb::arg("walks"), nb::arg("weights"), nb::arg("x"), nb::arg("h"), nb::arg("gates").noconvert(), nb::arg("candidate").noconvert(), nb::arg("grad_new"), nb::arg("grad_h").noconvert(), nb::arg("grad_x").noconvert().none(),
     nb::arg("grad_gate_weight").noconvert(), nb::arg("grad_gate_bias").noconvert(), nb::arg("grad_candidate_weight").noconvert(), nb::arg("grad_candidate_bias").noconvert(), nb::arg("num_threads"));
}

}  // namespace

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);  // a model that a script still holds when the interpreter ends is no leak
  m.doc() = "Graphmill's core: sampling, gathering, segment and matrix operators, a recurrent cell. Needs numpy, not torch.";
  m.def("keep_freed_memory",
        [] { return mallopt(M_MMAP_THRESHOLD, 32 << 20) == 1 && mallopt(M_TRIM_THRESHOLD, 1 << 30) == 1; },
        "Keep what is freed (up to 1 GiB, in pieces of up to 32 MiB) for the next step instead of handing it to the system and faulting it in again.");
  m.def("isa", [] { return std::string(kernels().name); }, "The instruction set in use: generic, avx2 or avx512.");
  bind_sampler(m);
  bind_gathers(m);
  bind_segments(m);
  bind_products(m);
  bind_recurrent(m);
}
