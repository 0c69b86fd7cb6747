// relu(batch norm), and its gradients.
#include "bindings.h"
#include "norms.h"

namespace graphmill {

namespace {

void check_lines(const Floats& x, std::initializer_list<int64_t> lengths) {
  require(length(x) >= 1, "x must have a row");
  for (const int64_t each : lengths) require(each == width(x), "weight, bias, mean and variance must be [n]");
}

void norm_relu_py(const Floats& x, const FloatLine& weight, const FloatLine& bias, float eps, Array<float, 1> mean,
                  Array<float, 1> variance, Array<float, 2> out, int num_threads) {
  check_lines(x, {length(weight), length(bias), length(mean), length(variance)});
  require(has_shape(out, length(x), width(x)), "out must be [num_rows, n]");
  nb::gil_scoped_release release;
  norm_relu({x.data(), length(x), width(x)}, weight.data(), bias.data(), eps, mean.data(), variance.data(), out.data(),
            num_threads);
}

void norm_relu_backward_py(const Floats& x, const FloatLine& weight, float eps, const FloatLine& mean,
                           const FloatLine& variance, const Floats& out, const Floats& grad_out, Array<float, 2> grad_x,
                           Array<float, 1> grad_weight, Array<float, 1> grad_bias, int num_threads) {
  check_lines(x, {length(weight), length(mean), length(variance), length(grad_weight), length(grad_bias)});
  require(has_shape(out, length(x), width(x)) && has_shape(grad_out, length(x), width(x)) &&
              has_shape(grad_x, length(x), width(x)),
          "out, grad_out and grad_x must be [num_rows, n]");
  nb::gil_scoped_release release;
  norm_relu_backward({x.data(), length(x), width(x)}, weight.data(), eps, mean.data(), variance.data(), out.data(),
                     grad_out.data(), grad_x.data(), grad_weight.data(), grad_bias.data(), num_threads);
}

}  // namespace

void bind_norms(nb::module_& m) {
  m.def("norm_relu", &norm_relu_py, nb::arg("x"), nb::arg("weight"), nb::arg("bias"), nb::arg("eps"),
        nb::arg("mean").noconvert(), nb::arg("variance").noconvert(), nb::arg("out").noconvert(),
        nb::arg("num_threads"));
  m.def("norm_relu_backward", &norm_relu_backward_py, nb::arg("x"), nb::arg("weight"), nb::arg("eps"), nb::arg("mean"),
        nb::arg("variance"), nb::arg("out"), nb::arg("grad_out"), nb::arg("grad_x").noconvert(),
        nb::arg("grad_weight").noconvert(), nb::arg("grad_bias").noconvert(), nb::arg("num_threads"));
}

}  // namespace graphmill
