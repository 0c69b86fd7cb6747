// Attention over edges in float32 and float64.
#include <nanobind/stl/optional.h>

#include "attention.h"
#include "bindings.h"
#include "bindings_edge_groups.h"

namespace graphmill {

namespace {

template <class T>
using Rows = Array<const T, 2>;
template <class T>
using Out = Array<T, 2>;

template <class T>
struct Call {  // the arrays are held as long as the pointers into them
  Attention<T> in;
  Groups groups;
  Rows<T> x, target_scores;
  std::optional<Rows<T>> source_scores, edge_attr, loop_attr, edge_weight;
  std::optional<Array<const T, 1>> att;
  uint64_t key;
  bool is_dropped;

  const Attention<T>& ready() {  // the key stands in this object, which may have moved
    in.key = is_dropped ? &key : nullptr;
    return in;
  }
};

template <class T>
void make_call(Call<T>* self, const Groups& groups, int64_t heads, const Rows<T>& x,
               std::optional<Rows<T>> source_scores, const Rows<T>& target_scores, std::optional<Rows<T>> edge_attr,
               std::optional<Rows<T>> loop_attr, std::optional<Rows<T>> edge_weight,
               std::optional<Array<const T, 1>> att, double negative_slope, double p, std::optional<uint64_t> key) {
  const EdgeGroups& edges = groups.edges;
  require(heads >= 1 && width(x) >= heads && width(x) % heads == 0, "x must have heads * channels columns");
  const int64_t scores = att ? width(x) : heads, features = edge_attr ? width(*edge_attr) : 0;
  require(length(x) == edges.num_sources, "x must have a row for each source");
  require(!att || length(*att) == scores, "att must be [heads * channels]");
  require(static_cast<bool>(att) != static_cast<bool>(source_scores), "there is either att or source_scores");
  require(!source_scores || has_shape(*source_scores, edges.num_sources, scores),
          "source_scores must be [num_sources, heads]");
  require(has_shape(target_scores, edges.num_targets, scores), "target_scores must be [num_targets, heads * scores]");
  require(!edge_attr || (length(*edge_attr) == edges.num_edges && edge_weight && loop_attr),
          "edge_attr must be [num_edges, edge_channels], with edge_weight and loop_attr");
  require(!edge_attr || has_shape(*edge_weight, features, scores),
          "edge_weight must be [edge_channels, heads * scores]");
  require(!edge_attr || has_shape(*loop_attr, edges.num_loops, features),
          "loop_attr must be [num_loops, edge_channels]");
  const Attention<T> in{edges,
                        heads,
                        width(x) / heads,
                        features,
                        x.data(),
                        source_scores ? source_scores->data() : x.data(),
                        target_scores.data(),
                        data_or_null(edge_attr),
                        data_or_null(loop_attr),
                        data_or_null(edge_weight),
                        data_or_null(att),
                        static_cast<T>(negative_slope),
                        nullptr,
                        threshold_of(p),
                        static_cast<T>(1.0 / (1.0 - p))};
  new (self) Call<T>{in,        groups,      x,   target_scores,   source_scores,  edge_attr,
                     loop_attr, edge_weight, att, key.value_or(0), key.has_value()};
}

template <class T>
void forward_py(Call<T>& call, Out<T> out, Out<T> lse, int num_threads) {
  const Attention<T>& in = call.ready();
  require(has_shape(out, in.edges.num_targets, in.heads * in.channels), "out must be [num_targets, heads * channels]");
  require(has_shape(lse, in.edges.num_targets, in.heads), "lse must be [num_targets, heads]");
  nb::gil_scoped_release release;
  attention<T>(in, out.data(), lse.data(), num_threads);
}

template <class T>
void weights_py(Call<T>& call, const Rows<T>& lse, Out<T> alpha, int num_threads) {
  const Attention<T>& in = call.ready();
  require(has_shape(lse, in.edges.num_targets, in.heads), "lse must be [num_targets, heads]");
  require(has_shape(alpha, in.edges.num_edges + in.edges.num_loops, in.heads),
          "alpha must be [num_edges + num_loops, heads]");
  nb::gil_scoped_release release;
  attention_weights<T>(in, lse.data(), alpha.data(), num_threads);
}

template <class A, class B>
bool like(const std::optional<A>& grad, const B& array) {
  return !grad || has_shape(*grad, length(array), width(array));
}

template <class T>
void backward_py(Call<T>& call, const Rows<T>& grad_out, const Rows<T>& out, const Rows<T>& lse, Out<T> pairs, Out<T> x,
                 std::optional<Out<T>> source_scores, Out<T> target_scores, std::optional<Out<T>> edge_attr,
                 std::optional<Out<T>> loop_attr, std::optional<Out<T>> edge_weight, std::optional<Array<T, 1>> att,
                 int num_threads) {
  const Attention<T>& in = call.ready();
  require(in.edges.out_indptr, "a gradient needs the edges by source");
  require(has_shape(grad_out, in.edges.num_targets, in.heads * in.channels) &&
              has_shape(out, in.edges.num_targets, in.heads * in.channels),
          "grad_out and out must be [num_targets, heads * channels]");
  require(has_shape(lse, in.edges.num_targets, in.heads), "lse must be [num_targets, heads]");
  require(has_shape(pairs, in.edges.num_edges + in.edges.num_loops, 2 * in.heads),
          "pairs must be [num_edges + num_loops, 2 * heads]");
  require(has_shape(x, length(call.x), width(call.x)) &&
              has_shape(target_scores, length(call.target_scores), width(call.target_scores)) &&
              source_scores.has_value() == call.source_scores.has_value() &&
              (!source_scores || like(source_scores, *call.source_scores)) &&
              edge_weight.has_value() == call.edge_weight.has_value() &&
              (!edge_weight || like(edge_weight, *call.edge_weight)) && att.has_value() == call.att.has_value() &&
              (!att || length(*att) == length(*call.att)),
          "gradients have the shapes of what they are of");
  require(!edge_attr ||
              (call.edge_attr && loop_attr && like(edge_attr, *call.edge_attr) && like(loop_attr, *call.loop_attr)),
          "gradients of features have their shapes");
  const AttentionGrads<T> grads{grad_out.data(),
                                out.data(),
                                lse.data(),
                                pairs.data(),
                                nullptr,
                                0,
                                x.data(),
                                data_or_null(source_scores),
                                target_scores.data(),
                                data_or_null(edge_attr),
                                data_or_null(loop_attr),
                                data_or_null(edge_weight),
                                data_or_null(att)};
  nb::gil_scoped_release release;
  attention_backward<T>(in, grads, num_threads);
}

template <class T>
void bind_call(nb::module_& m, const char* name) {
  nb::class_<Call<T>>(m, name, "The inputs of attention over edges.")
      .def("__init__", &make_call<T>, nb::arg("groups"), nb::arg("heads"), nb::arg("x"),
           nb::arg("source_scores").none(), nb::arg("target_scores"), nb::arg("edge_attr").none(),
           nb::arg("loop_attr").none(), nb::arg("edge_weight").none(), nb::arg("att").none(), nb::arg("negative_slope"),
           nb::arg("p"), nb::arg("key").none())
      .def("forward", &forward_py<T>, nb::arg("out").noconvert(), nb::arg("lse").noconvert(), nb::arg("num_threads"))
      .def("weights", &weights_py<T>, nb::arg("lse"), nb::arg("alpha").noconvert(), nb::arg("num_threads"))
      .def("backward", &backward_py<T>, nb::arg("grad_out"), nb::arg("out"), nb::arg("lse"),
           nb::arg("pairs").noconvert(), nb::arg("x").noconvert(), nb::arg("source_scores").noconvert().none(),
           nb::arg("target_scores").noconvert(), nb::arg("edge_attr").noconvert().none(),
           nb::arg("loop_attr").noconvert().none(), nb::arg("edge_weight").noconvert().none(),
           nb::arg("att").noconvert().none(), nb::arg("num_threads"));
}

}  // namespace

void bind_attention(nb::module_& m) {
  bind_call<float>(m, "Attention");
  bind_call<double>(m, "AttentionDouble");
}

}  // namespace graphmill
