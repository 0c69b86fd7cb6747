// Dense products with bias, ReLU and dropout, and their gradients.
#include <nanobind/stl/optional.h>

#include "bindings.h"

namespace graphmill {

namespace {

void linear_py(const Floats& a, const Floats& w, std::optional<FloatLine> bias, Array<float, 2> out, bool relu,
               std::optional<Keys> row_keys, double p, int num_threads) {
  require(width(a) == width(w), "a [m, k] and w [n, k] differ in k");
  require(has_shape(out, length(a), length(w)), "out must be [m, n]");
  require(!bias || length(*bias) == length(w), "bias must be [n]");
  require(!row_keys || length(*row_keys) == length(a), "row_keys must be [m]");
  const Epilogue epilogue{data_or_null(bias), data_or_null(row_keys), threshold_of(p), scale_of(p), relu};
  nb::gil_scoped_release release;
  linear(a.data(), length(a), width(a), w.data(), length(w), epilogue, out.data(), num_threads);
}

void linear_backward_py(const Floats& grad_out, std::optional<Floats> out, double p, const Floats& a,
                        Array<float, 2> dw, Array<float, 1> db, int num_threads) {
  require(length(grad_out) == length(a) && has_shape(dw, width(grad_out), width(a)),
          "dw must be [n, k] for grad_out [m, n] and a [m, k]");
  require(!out || has_shape(*out, length(grad_out), width(grad_out)), "out must be [m, n]");
  require(length(db) == width(grad_out), "db must be [n]");
  nb::gil_scoped_release release;
  linear_backward(grad_out.data(), data_or_null(out), scale_of(p), a.data(), length(a), width(grad_out), width(a),
                  dw.data(), db.data(), num_threads);
}

void finish_py(const Array<const uint16_t, 2>& product, std::optional<FloatLine> bias, Array<float, 2> out, bool relu,
               std::optional<Keys> row_keys, double p, int num_threads) {
  require(has_shape(out, length(product), width(product)), "out must be [m, n]");
  require(!bias || length(*bias) == width(product), "bias must be [n]");
  require(!row_keys || length(*row_keys) == length(product), "row_keys must be [m]");
  const Epilogue epilogue{data_or_null(bias), data_or_null(row_keys), threshold_of(p), scale_of(p), relu};
  nb::gil_scoped_release release;
  finish(product.data(), length(product), width(product), epilogue, out.data(), num_threads);
}

void narrow_gradient_py(const Floats& grad_out, std::optional<Floats> out, double p, Array<uint16_t, 2> narrow,
                        Array<float, 1> db, int num_threads) {
  require(has_shape(narrow, length(grad_out), width(grad_out)), "narrow must be [m, n]");
  require(!out || has_shape(*out, length(grad_out), width(grad_out)), "out must be [m, n]");
  require(length(db) == width(grad_out), "db must be [n]");
  nb::gil_scoped_release release;
  narrow_gradient(grad_out.data(), data_or_null(out), scale_of(p), length(grad_out), width(grad_out), narrow.data(),
                  db.data(), num_threads);
}

void relu_dropout_py(const Floats& x, const Keys& row_keys, double p, Array<float, 2> out, int num_threads) {
  require(length(row_keys) == length(x) && has_shape(out, length(x), width(x)), "row_keys must be [m], out [m, n]");
  nb::gil_scoped_release release;
  relu_dropout(x.data(), length(x), width(x), row_keys.data(), threshold_of(p), scale_of(p), out.data(), num_threads);
}

void relu_dropout_backward_py(const Floats& grad_out, const Floats& out, double p, Array<float, 2> grad_in,
                              int num_threads) {
  require(has_shape(grad_out, length(out), width(out)), "grad_out and out differ in shape");
  require(has_shape(grad_in, length(out), width(out)), "grad_in and out differ in shape");
  nb::gil_scoped_release release;
  relu_dropout_backward(grad_out.data(), out.data(), length(out) * width(out), scale_of(p), grad_in.data(),
                        num_threads);
}

}  // namespace

void bind_products(nb::module_& m) {
  m.def("linear", &linear_py, nb::arg("a"), nb::arg("w"), nb::arg("bias").none(), nb::arg("out").noconvert(),
        nb::arg("relu"), nb::arg("row_keys").none(), nb::arg("p"), nb::arg("num_threads"));
  m.def("linear_backward", &linear_backward_py, nb::arg("grad_out"), nb::arg("out").none(), nb::arg("p"), nb::arg("a"),
        nb::arg("dw").noconvert(), nb::arg("db").noconvert(), nb::arg("num_threads"));
  m.def("finish", &finish_py, nb::arg("product"), nb::arg("bias").none(), nb::arg("out").noconvert(), nb::arg("relu"),
        nb::arg("row_keys").none(), nb::arg("p"), nb::arg("num_threads"));
  m.def("narrow_gradient", &narrow_gradient_py, nb::arg("grad_out"), nb::arg("out").none(), nb::arg("p"),
        nb::arg("narrow").noconvert(), nb::arg("db").noconvert(), nb::arg("num_threads"));
  m.def("relu_dropout", &relu_dropout_py, nb::arg("x"), nb::arg("row_keys"), nb::arg("p"), nb::arg("out").noconvert(),
        nb::arg("num_threads"));
  m.def("relu_dropout_backward", &relu_dropout_backward_py, nb::arg("grad_out"), nb::arg("out"), nb::arg("p"),
        nb::arg("grad_in").noconvert(), nb::arg("num_threads"));
}

}  // namespace graphmill
