// Layers with fixed weights, for small graphs.
#include <nanobind/stl/optional.h>

#include "bindings.h"
#include "fixed_layers.h"

namespace graphmill {

namespace {

using Out = Array<float, 2>;

void make_edges(GraphEdges* self, const Ids& num_nodes, const Ids& num_edges, const Array<const int32_t, 2>& ends) {
  require(length(num_nodes) == length(num_edges), "num_nodes and num_edges differ in length");
  require(length(ends) == 2, "ends must be [2, num_edges]");
  int64_t count = 0;
  for (int64_t graph = 0; graph < length(num_nodes); ++graph) {
    require(num_nodes.data()[graph] >= 0 && num_edges.data()[graph] >= 0, "a number of nodes or edges is negative");
    const int64_t begin = count;
    count += num_edges.data()[graph];
    require(count <= width(ends), "there are fewer edges than graphs have");
    for (int64_t edge = begin; edge < count; ++edge)
      for (int64_t end = 0; end < 2; ++end) {
        const int32_t node = ends.data()[end * width(ends) + edge];
        require(node >= 0 && node < num_nodes.data()[graph], "an edge leads beyond the nodes of its graph");
      }
  }
  require(count == width(ends), "there are more edges than graphs have");
  new (self) GraphEdges(num_nodes.data(), num_edges.data(), length(num_nodes), ends.data(), ends.data() + width(ends));
}

void means_py(const GraphEdges& edges, const Floats& attr, Out out) {
  require(length(attr) == edges.num_edges(), "attr must have a row for each edge");
  require(has_shape(out, edges.num_nodes(), width(attr)), "out must be [num_nodes, width]");
  edges.means(attr.data(), width(attr), out.data());
}

void make_linear(FixedLinear* self, const Floats& w, std::optional<FloatLine> bias, bool relu) {
  require(!bias || length(*bias) == length(w), "bias must be [n]");
  new (self) FixedLinear(w.data(), data_or_null(bias), length(w), width(w), relu);
}

void linear_forward(const FixedLinear& layer, const Floats& x, Out out) {
  require(width(x) == layer.num_in() && has_shape(out, length(x), layer.num_out()), "x must be [m, k], out [m, n]");
  nb::gil_scoped_release release;
  layer.forward(x.data(), length(x), out.data());
}

void linear_backward_py(const FixedLinear& layer, const Floats& grad_out, const Floats& out, Out grad_x) {
  require(width(out) == layer.num_out() && has_shape(grad_out, length(out), width(out)),
          "grad_out and out must be [m, n]");
  require(has_shape(grad_x, length(out), layer.num_in()), "grad_x must be [m, k]");
  nb::gil_scoped_release release;
  layer.backward(grad_out.data(), out.data(), length(out), grad_x.data());
}

void make_attention(FixedAttention* self, int64_t heads, const Floats& projection,
                    std::optional<FloatLine> projection_bias, std::optional<Floats> edge_weight,
                    std::optional<FloatLine> att, std::optional<FloatLine> bias, int64_t channels, float negative_slope,
                    bool normalise) {
  require(heads >= 1 && channels >= 1, "there must be a head and a channel");
  const AttentionShape shape{heads, channels, edge_weight ? length(*edge_weight) : 0, att.has_value()};
  require(length(projection) == shape.projected(), "projection must have a row for each value and score");
  require(!projection_bias || length(*projection_bias) == shape.projected(), "projection_bias must be as projection");
  require(!edge_weight || width(*edge_weight) == shape.scores(), "edge_weight must be [edge_channels, scores]");
  require(!att || length(*att) == shape.scores(), "att must be [heads * channels]");
  require(!bias || length(*bias) == shape.width(), "bias must be [heads * channels]");
  new (self)
      FixedAttention(shape, width(projection), projection.data(), data_or_null(projection_bias),
                     data_or_null(edge_weight), data_or_null(att), data_or_null(bias), negative_slope, normalise);
}

void require_features(const FixedAttention& layer, const GraphEdges& edges, const std::optional<Floats>& attr,
                      const std::optional<Floats>& loop_attr) {
  const int64_t features = layer.shape().edge_channels;
  require(attr.has_value() == (features > 0) && loop_attr.has_value() == (features > 0),
          "features of edges are given where the layer reads them");
  require(
      !attr || (has_shape(*attr, edges.num_edges(), features) && has_shape(*loop_attr, edges.num_nodes(), features)),
      "attr must be [num_edges, edge_channels], loop_attr [num_nodes, edge_channels]");
}

void attention_forward_py(FixedAttention& layer, const GraphEdges& edges, const Floats& x, std::optional<Floats> attr,
                          std::optional<Floats> loop_attr, Out out) {
  require_features(layer, edges, attr, loop_attr);
  require(has_shape(x, edges.num_nodes(), layer.num_in()), "x must be [num_nodes, in_channels]");
  require(has_shape(out, edges.num_nodes(), layer.shape().width()), "out must be [num_nodes, heads * channels]");
  nb::gil_scoped_release release;
  layer.forward(edges, x.data(), data_or_null(attr), data_or_null(loop_attr), out.data());
}

void attention_backward_py(FixedAttention& layer, const GraphEdges& edges, std::optional<Floats> attr,
                           std::optional<Floats> loop_attr, const Floats& out, const Floats& grad_out, Out grad_x,
                           std::optional<Out> grad_attr) {
  require_features(layer, edges, attr, loop_attr);
  require(layer.num_nodes() == edges.num_nodes(), "forward comes before backward, with the same edges");
  require(has_shape(out, edges.num_nodes(), layer.shape().width()) && has_shape(grad_out, length(out), width(out)),
          "out and grad_out must be [num_nodes, heads * channels]");
  require(has_shape(grad_x, edges.num_nodes(), layer.num_in()), "grad_x must be [num_nodes, in_channels]");
  require(grad_attr.has_value() == attr.has_value() && (!attr || has_shape(*grad_attr, length(*attr), width(*attr))),
          "grad_attr has the shape of attr");
  nb::gil_scoped_release release;
  layer.backward(edges, data_or_null(attr), data_or_null(loop_attr), out.data(), grad_out.data(), grad_x.data(),
                 data_or_null(grad_attr));
}

}  // namespace

void bind_fixed_layers(nb::module_& m) {
  nb::class_<GraphEdges>(m, "GraphEdges", "The edges of small graphs one after another, with loops.")
      .def("__init__", &make_edges, nb::arg("num_nodes"), nb::arg("num_edges"), nb::arg("ends"))
      .def("means", &means_py, nb::arg("attr"), nb::arg("out").noconvert());
  nb::class_<FixedLinear>(m, "FixedLinear", "A linear layer whose weights stay.")
      .def("__init__", &make_linear, nb::arg("w"), nb::arg("bias").none(), nb::arg("relu"))
      .def("forward", &linear_forward, nb::arg("x"), nb::arg("out").noconvert())
      .def("backward", &linear_backward_py, nb::arg("grad_out"), nb::arg("out"), nb::arg("grad_x").noconvert());
  nb::class_<FixedAttention>(m, "FixedAttention", "A layer of attention whose weights stay.")
      .def("__init__", &make_attention, nb::arg("heads"), nb::arg("projection"), nb::arg("projection_bias").none(),
           nb::arg("edge_weight").none(), nb::arg("att").none(), nb::arg("bias").none(), nb::arg("channels"),
           nb::arg("negative_slope"), nb::arg("normalise"))
      .def("forward", &attention_forward_py, nb::arg("edges"), nb::arg("x"), nb::arg("attr").none(),
           nb::arg("loop_attr").none(), nb::arg("out").noconvert())
      .def("backward", &attention_backward_py, nb::arg("edges"), nb::arg("attr").none(), nb::arg("loop_attr").none(),
           nb::arg("out"), nb::arg("grad_out"), nb::arg("grad_x").noconvert(), nb::arg("grad_attr").noconvert().none());
}

}  // namespace graphmill
