// Means over segments of rows, products of sparse rows, and their gradients.
#include "bindings.h"

namespace graphmill {

namespace {

void segment_mean_py(const Floats& x, const Ids& indptr, const Locals& indices, Array<float, 2> out, int num_threads) {
  const Segments segments = segments_of(indptr, indices);
  require(has_shape(out, segments.num_rows, width(x)), "out must be [num_rows, num_columns]");
  nb::gil_scoped_release release;
  segment_mean(x.data(), width(x), segments, out.data(), num_threads);
}

void segment_mean_backward_py(const Floats& grad_out, const Ids& indptr, const Locals& indices, Array<float, 2> grad_x,
                              int num_threads) {
  const Segments segments = segments_of(indptr, indices);
  require(has_shape(grad_out, segments.num_rows, width(grad_x)), "grad_out must be [num_rows, num_columns]");
  nb::gil_scoped_release release;
  segment_mean_backward(grad_out.data(), width(grad_out), segments, grad_x.data(), length(grad_x), num_threads);
}

void self_and_mean_backward_py(const Floats& grad_out, const Ids& indptr, const Locals& indices, Array<float, 2> grad_x,
                               int num_threads) {
  const Segments segments = segments_of(indptr, indices);
  require(has_shape(grad_out, segments.num_rows, 2 * width(grad_x)), "grad_out must be [num_rows, 2 * num_columns]");
  require(length(grad_x) >= length(grad_out), "grad_x must hold the rows of grad_out");
  nb::gil_scoped_release release;
  self_and_mean_backward(grad_out.data(), width(grad_x), segments, grad_x.data(), length(grad_x), num_threads);
}

void self_and_sum_py(const Floats& x, float scale, const Ids& indptr, const Locals& indices, Array<float, 2> out,
                     int num_threads) {
  const Segments segments = segments_of(indptr, indices);
  require(has_shape(out, segments.num_rows, width(x)), "out must be [num_rows, num_columns]");
  require(length(x) >= segments.num_rows, "x must hold the rows of out");
  nb::gil_scoped_release release;
  self_and_sum(x.data(), scale, width(x), segments, out.data(), num_threads);
}

void self_and_sum_backward_py(const Floats& grad_out, float scale, const Ids& indptr, const Locals& indices,
                              Array<float, 2> grad_x, int num_threads) {
  const Segments segments = segments_of(indptr, indices);
  require(has_shape(grad_out, segments.num_rows, width(grad_x)), "grad_out must be [num_rows, num_columns]");
  require(length(grad_x) >= length(grad_out), "grad_x must hold the rows of grad_out");
  nb::gil_scoped_release release;
  self_and_sum_backward(grad_out.data(), scale, width(grad_x), segments, grad_x.data(), length(grad_x), num_threads);
}

void sparse_multiply_py(const Ids& indptr, const Locals& indices, const FloatLine& values, const Floats& w,
                        Array<float, 2> out, int num_threads) {
  const SparseMatrix x = sparse_of(indptr, indices, values);
  require(has_shape(out, x.num_rows, width(w)), "out must be [num_rows, n]");
  nb::gil_scoped_release release;
  sparse_multiply(x, w.data(), width(w), out.data(), num_threads);
}

void sparse_multiply_backward_py(const Ids& indptr, const Locals& indices, const FloatLine& values,
                                 const Floats& grad_out, Array<float, 2> grad_w, int num_threads) {
  const SparseMatrix x = sparse_of(indptr, indices, values);
  require(has_shape(grad_out, x.num_rows, width(grad_w)), "grad_out must be [num_rows, n]");
  nb::gil_scoped_release release;
  sparse_multiply_backward(x, grad_out.data(), width(grad_w), grad_w.data(), length(grad_w), num_threads);
}

}  // namespace

void bind_segments(nb::module_& m) {
  m.def("segment_mean", &segment_mean_py, nb::arg("x"), nb::arg("indptr"), nb::arg("indices"),
        nb::arg("out").noconvert(), nb::arg("num_threads"));
  m.def("segment_mean_backward", &segment_mean_backward_py, nb::arg("grad_out"), nb::arg("indptr"), nb::arg("indices"),
        nb::arg("grad_x").noconvert(), nb::arg("num_threads"));
  m.def("self_and_mean_backward", &self_and_mean_backward_py, nb::arg("grad_out"), nb::arg("indptr"),
        nb::arg("indices"), nb::arg("grad_x").noconvert(), nb::arg("num_threads"));
  m.def("self_and_sum", &self_and_sum_py, nb::arg("x"), nb::arg("scale"), nb::arg("indptr"), nb::arg("indices"),
        nb::arg("out").noconvert(), nb::arg("num_threads"));
  m.def("self_and_sum_backward", &self_and_sum_backward_py, nb::arg("grad_out"), nb::arg("scale"), nb::arg("indptr"),
        nb::arg("indices"), nb::arg("grad_x").noconvert(), nb::arg("num_threads"));
  m.def("sparse_multiply", &sparse_multiply_py, nb::arg("indptr"), nb::arg("indices"), nb::arg("values"), nb::arg("w"),
        nb::arg("out").noconvert(), nb::arg("num_threads"));
  m.def("sparse_multiply_backward", &sparse_multiply_backward_py, nb::arg("indptr"), nb::arg("indices"),
        nb::arg("values"), nb::arg("grad_out"), nb::arg("grad_w").noconvert(), nb::arg("num_threads"));
}

}  // namespace graphmill
