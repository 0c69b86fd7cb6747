// Layers whose weights no longer change, for graphs so small that what surrounds a product costs as much as the
// product: a window of CAN frames has some 30 nodes. A layer is one call, keeps its weights as the product reads them,
// and remembers what its gradient needs until it is called again. One thread.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "attention.h"
#include "operators.h"

namespace graphmill {

// The edges of graphs one after another, each node with an edge to itself in place of any that it has.
class GraphEdges {
 public:
  // sources, targets [num_edges in all]: nodes counted within their graph.
  GraphEdges(const int64_t* num_nodes, const int64_t* num_edges, int64_t num_graphs, const int32_t* sources,
             const int32_t* targets);
  EdgeGroups groups() const;
  int64_t num_nodes() const { return num_nodes_; }
  int64_t num_edges() const { return static_cast<int64_t>(edge_ids_.size()); }
  // out[i]: the mean of the rows of attr [num_edges, width] that lead to node i; 0 of none.
  void means(const float* attr, int64_t width, float* out) const;
  // grad_attr += what follows from the gradient of those means.
  void add_means_backward(const float* grad_out, int64_t width, float* grad_attr) const;

 private:
  int64_t num_nodes_ = 0;
  std::vector<int64_t> indptr_, out_indptr_;
  std::vector<int32_t> sources_, edge_ids_, targets_, slots_;
};

// relu(x · wᵀ + bias), or without relu; and the gradient of x.
class FixedLinear {
 public:
  FixedLinear(const float* w, const float* bias, int64_t num_out, int64_t num_in, bool relu);
  void forward(const float* x, int64_t m, float* out) const;
  // `out` is what forward gave, and is read where there is a ReLU.
  void backward(const float* grad_out, const float* out, int64_t m, float* grad_x) const;

  int64_t num_out() const { return forward_.n; }
  int64_t num_in() const { return forward_.k; }

 private:
  PackedWeights forward_, backward_;
  std::vector<float> bias_;
  bool relu_;
};

struct AttentionShape {
  int64_t heads, channels, edge_channels;
  bool has_att;  // GATv2
  int64_t width() const { return heads * channels; }
  int64_t scores() const { return heads * (has_att ? channels : 1); }
  int64_t projected() const { return width() + (has_att ? 0 : heads) + scores(); }
};

// relu(attention + bias), or relu(layer_norm(attention + bias)) over the channels of a node.
class FixedAttention {
 public:
  // projection [projected, num_in]: what makes values, scores of sources (without att), scores of targets; its bias
  // [projected] or null; edge_weight [edge_channels, scores]; att [scores] or null; bias [width] or null.
  FixedAttention(const AttentionShape& shape, int64_t num_in, const float* projection, const float* projection_bias,
                 const float* edge_weight, const float* att, const float* bias, float negative_slope, bool normalise);
  // x [num_nodes, num_in], attr [num_edges, edge_channels], loop_attr [num_nodes, edge_channels] → out [num_nodes,
  // width].
  void forward(const GraphEdges& edges, const float* x, const float* attr, const float* loop_attr, float* out);
  // After `forward` of the same arguments: grad_x, and grad_attr += the gradient of the edges' features.
  void backward(const GraphEdges& edges, const float* attr, const float* loop_attr, const float* out,
                const float* grad_out, float* grad_x, float* grad_attr);

  const AttentionShape& shape() const { return shape_; }
  int64_t num_in() const { return forward_.k; }
  int64_t num_nodes() const { return num_nodes_; }  // of the last call

 private:
  Attention<float> call(const GraphEdges& edges, const float* attr, const float* loop_attr) const;
  void split();
  void finish(const float* raw, float* out) const;
  void unfinish(const float* raw, const float* out, float* grad) const;
  void spread_back(float* grad_x);

  AttentionShape shape_;
  PackedWeights forward_, backward_;
  std::vector<float> projection_bias_, edge_weight_, att_, bias_;
  float negative_slope_;
  bool normalise_;
  int64_t num_nodes_ = 0;
  Buffer<float> projected_, values_, sources_, targets_, raw_, lse_;                          // forward
  Buffer<float> grad_, grad_values_, grad_sources_, grad_targets_, grad_edges_, grad_loops_;  // backward
  Buffer<float> pairs_, grad_weight_, grad_att_;
};

}  // namespace graphmill
