// The diffusion convolutional gated recurrent unit.
#include <nanobind/stl/optional.h>

#include "bindings.h"
#include "dcgru.h"

namespace graphmill {

namespace {

void make_walks(Walks* self, const Ids& indptr, const Locals& indices, const FloatLine& values, int64_t num_nodes,
                int64_t num_steps) {
  const SparseMatrix stacked = sparse_of(indptr, indices, values);
  require(num_nodes >= 1 && num_steps >= 1, "a walk has nodes and steps");
  require(stacked.num_rows % num_nodes == 0, "indptr must hold num_walks * num_nodes + 1 offsets");
  require(stacked.indptr[0] == 0 && stacked.indptr[stacked.num_rows] == length(indices),
          "indptr must start at 0 and end at the number of values");
  for (int64_t row = 0; row < stacked.num_rows; ++row)
    require(stacked.indptr[row] <= stacked.indptr[row + 1], "indptr must not fall");
  for (int64_t i = 0; i < length(indices); ++i)
    require(indices.data()[i] >= 0 && indices.data()[i] < num_nodes, "an index is no node");
  new (self) Walks(stacked, num_nodes, num_steps);
}

void make_weights(DcgruWeights* self, const Floats& gate_weight, const FloatLine& gate_bias,
                  const Floats& candidate_weight, const FloatLine& candidate_bias, int64_t num_slots) {
  const int64_t units = length(candidate_weight), k = width(candidate_weight);
  require(num_slots >= 1 && k % num_slots == 0 && k / num_slots > units,
          "weights must have num_slots * (units + channels) columns");
  require(has_shape(gate_weight, 2 * units, k), "gate_weight must be [2 * units, columns]");
  require(length(gate_bias) == 2 * units && length(candidate_bias) == units, "biases must be [2 * units] and [units]");
  new (self) DcgruWeights(gate_weight.data(), gate_bias.data(), candidate_weight.data(), candidate_bias.data(),
                          num_slots, k / num_slots - units, units);
}

DcgruState state_of(const Walks& walks, const DcgruWeights& w, const Floats& x, const Floats& h,
                    const Array<float, 2>& gates, const Array<float, 2>& candidate) {
  const int64_t rows = length(h);
  require(walks.num_slots() == w.num_slots, "the weights are for another number of slots");
  require(rows % walks.num_nodes == 0, "rows must be whole samples");
  require(has_shape(x, rows, w.channels), "x must be [rows, channels]");
  require(width(h) == w.units, "h must be [rows, units]");
  require(has_shape(gates, rows, 2 * w.units), "gates must be [rows, 2 * units]");
  require(has_shape(candidate, rows, w.units), "candidate must be [rows, units]");
  return {rows / walks.num_nodes, x.data(), h.data(), gates.data(), candidate.data()};
}

void dcgru_forward_py(const Walks& walks, const DcgruWeights& w, const Floats& x, const Floats& h,
                      Array<float, 2> gates, Array<float, 2> candidate, Array<float, 2> new_h, int num_threads) {
  const DcgruState state = state_of(walks, w, x, h, gates, candidate);
  require(has_shape(new_h, length(h), width(h)), "new_h must be [rows, units]");
  nb::gil_scoped_release release;
  dcgru_forward(walks, w, state, new_h.data(), num_threads);
}

void dcgru_backward_py(const Walks& walks, const DcgruWeights& w, const Floats& x, const Floats& h,
                       Array<float, 2> gates, Array<float, 2> candidate, const Floats& grad_new, Array<float, 2> grad_h,
                       std::optional<Array<float, 2>> grad_x, Array<float, 2> grad_gate_weight,
                       Array<float, 1> grad_gate_bias, Array<float, 2> grad_candidate_weight,
                       Array<float, 1> grad_candidate_bias, int num_threads) {
  const DcgruState state = state_of(walks, w, x, h, gates, candidate);
  const int64_t k = w.num_slots * (w.units + w.channels);
  require(has_shape(grad_new, length(h), width(h)), "grad_new must be [rows, units]");
  require(has_shape(grad_h, length(h), width(h)), "grad_h must be [rows, units]");
  require(!grad_x || has_shape(*grad_x, length(x), width(x)), "grad_x must be [rows, channels]");
  require(has_shape(grad_gate_weight, 2 * w.units, k) && has_shape(grad_candidate_weight, w.units, k),
          "gradients of weights have their shapes");
  require(length(grad_gate_bias) == 2 * w.units && length(grad_candidate_bias) == w.units,
          "gradients of biases have their shapes");
  const DcgruGrads grads{grad_new.data(),           grad_h.data(),         data_or_null(grad_x),
                         grad_gate_weight.data(),   grad_gate_bias.data(), grad_candidate_weight.data(),
                         grad_candidate_bias.data()};
  nb::gil_scoped_release release;
  dcgru_backward(walks, w, state, grads, num_threads);
}

}  // namespace

void bind_recurrent(nb::module_& m) {
  nb::class_<Walks>(m, "Walks", "The random walks of a graph and how many steps of each a diffusion convolution takes.")
      .def("__init__", &make_walks, nb::arg("indptr"), nb::arg("indices"), nb::arg("values"), nb::arg("num_nodes"),
           nb::arg("num_steps"))
      .def_prop_ro("num_slots", &Walks::num_slots);
  nb::class_<DcgruWeights>(m, "DcgruWeights",
                           "The weights of a DCGRU cell, packed for the products of all steps of a sequence.")
      .def("__init__", &make_weights, nb::arg("gate_weight"), nb::arg("gate_bias"), nb::arg("candidate_weight"),
           nb::arg("candidate_bias"), nb::arg("num_slots"));
  m.def("dcgru_forward", &dcgru_forward_py, nb::arg("walks"), nb::arg("weights"), nb::arg("x"), nb::arg("h"),
        nb::arg("gates").noconvert(), nb::arg("candidate").noconvert(), nb::arg("new_h").noconvert(),
        nb::arg("num_threads"));
  m.def("dcgru_backward", &dcgru_backward_py, nb::arg("walks"), nb::arg("weights"), nb::arg("x"), nb::arg("h"),
        nb::arg("gates").noconvert(), nb::arg("candidate").noconvert(), nb::arg("grad_new"),
        nb::arg("grad_h").noconvert(), nb::arg("grad_x").noconvert().none(), nb::arg("grad_gate_weight").noconvert(),
        nb::arg("grad_gate_bias").noconvert(), nb::arg("grad_candidate_weight").noconvert(),
        nb::arg("grad_candidate_bias").noconvert(), nb::arg("num_threads"));
}

}  // namespace graphmill
