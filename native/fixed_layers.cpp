#include "fixed_layers.h"

#include <cmath>
#include <cstring>
#include <numeric>

namespace graphmill {

namespace {

constexpr float kLayerNormEpsilon = 1e-5f;  // torch's

std::vector<float> copied(const float* from, int64_t count) {
  return from ? std::vector<float>(from, from + count) : std::vector<float>();
}

// [n, k] → [k, n]
std::vector<float> transposed(const float* w, int64_t n, int64_t k) {
  std::vector<float> turned(n * k);
  for (int64_t row = 0; row < n; ++row)
    for (int64_t column = 0; column < k; ++column) turned[column * n + row] = w[row * k + column];
  return turned;
}

// The sum of of(i); in parts, which a compiler can keep in the lanes of a vector.
template <class Of>
float sum(int64_t count, const Of& of) {
  constexpr int64_t kParts = 16;
  float parts[kParts] = {};
  int64_t i = 0;
  for (; i + kParts <= count; i += kParts)
    for (int64_t part = 0; part < kParts; ++part) parts[part] += of(i + part);
  float total = std::accumulate(parts, parts + kParts, 0.0f);
  for (; i < count; ++i) total += of(i);
  return total;
}

struct Moments {
  float mean, rstd;
};

template <class Of>
Moments moments(int64_t count, const Of& of) {
  const float mean = sum(count, of) / static_cast<float>(count);
  const float squares = sum(count, [&](int64_t i) { return (of(i) - mean) * (of(i) - mean); });
  return {mean, 1.0f / std::sqrt(squares / static_cast<float>(count) + kLayerNormEpsilon)};
}

bool is_zero(const float* row, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (row[i] != 0) return false;
  return true;
}

}  // namespace

// ---- edges ----------------------------------------------------------------------------------------------------------

GraphEdges::GraphEdges(const int64_t* num_nodes, const int64_t* num_edges, int64_t num_graphs, const int32_t* sources,
                       const int32_t* targets) {
  num_nodes_ = std::accumulate(num_nodes, num_nodes + num_graphs, int64_t{0});
  const int64_t count = std::accumulate(num_edges, num_edges + num_graphs, int64_t{0});
  std::vector<int64_t> from(count), to(count);
  for (int64_t graph = 0, edge = 0, first = 0; graph < num_graphs; first += num_nodes[graph++]) {
    for (const int64_t end = edge + num_edges[graph]; edge < end; ++edge) {
      from[edge] = first + sources[edge];
      to[edge] = first + targets[edge];
    }
  }
  indptr_.resize(num_nodes_ + 1);
  out_indptr_.resize(num_nodes_ + 1);
  for (auto* ends : {&sources_, &edge_ids_, &targets_, &slots_}) ends->resize(count);
  EdgeGroups sizes{};
  sizes.num_sources = sizes.num_targets = sizes.num_loops = num_nodes_;
  sizes.num_edges = count;
  group_edges(from.data(), to.data(), sizes, indptr_.data(), sources_.data(), edge_ids_.data(), out_indptr_.data(),
              targets_.data(), slots_.data());
}

EdgeGroups GraphEdges::groups() const {
  return {num_nodes_,      num_nodes_,       num_edges(),        num_nodes_,      indptr_.data(),
          sources_.data(), edge_ids_.data(), out_indptr_.data(), targets_.data(), slots_.data()};
}

void GraphEdges::means(const float* attr, int64_t width, float* out) const {
  std::fill_n(out, num_nodes_ * width, 0.0f);
  for (int64_t node = 0; node < num_nodes_; ++node, out += width) {
    const int64_t begin = indptr_[node], end = indptr_[node + 1];
    for (int64_t slot = begin; slot < end; ++slot)
      for (int64_t f = 0; f < width; ++f) out[f] += attr[edge_ids_[slot] * width + f];
    for (int64_t f = 0; f < width && begin < end; ++f) out[f] *= 1.0f / static_cast<float>(end - begin);
  }
}

void GraphEdges::add_means_backward(const float* grad_out, int64_t width, float* grad_attr) const {
  for (int64_t node = 0; node < num_nodes_; ++node, grad_out += width) {
    const int64_t begin = indptr_[node], end = indptr_[node + 1];
    for (int64_t slot = begin; slot < end; ++slot)
      for (int64_t f = 0; f < width; ++f)
        grad_attr[edge_ids_[slot] * width + f] += grad_out[f] / static_cast<float>(end - begin);
  }
}

// ---- linear ---------------------------------------------------------------------------------------------------------

FixedLinear::FixedLinear(const float* w, const float* bias, int64_t num_out, int64_t num_in, bool relu)
    : forward_(w, num_out, num_in),
      backward_(transposed(w, num_out, num_in).data(), num_in, num_out),
      bias_(copied(bias, num_out)),
      relu_(relu) {}

void FixedLinear::forward(const float* x, int64_t m, float* out) const {
  forward_.multiply(x, m, {bias_.empty() ? nullptr : bias_.data(), nullptr, 0, 1, relu_}, out, 1);
}

void FixedLinear::backward(const float* grad_out, const float* out, int64_t m, float* grad_x) const {
  const int64_t count = m * forward_.n;
  std::vector<float> passed;
  if (relu_) {
    passed.resize(count);
    for (int64_t i = 0; i < count; ++i) passed[i] = out[i] > 0 ? grad_out[i] : 0.0f;
    grad_out = passed.data();
  }
  backward_.multiply(grad_out, m, {nullptr, nullptr, 0, 1, false}, grad_x, 1);
}

// ---- attention ------------------------------------------------------------------------------------------------------

FixedAttention::FixedAttention(const AttentionShape& shape, int64_t num_in, const float* projection,
                               const float* projection_bias, const float* edge_weight, const float* att,
                               const float* bias, float negative_slope, bool normalise)
    : shape_(shape),
      forward_(projection, shape.projected(), num_in),
      backward_(transposed(projection, shape.projected(), num_in).data(), num_in, shape.projected()),
      projection_bias_(copied(projection_bias, shape.projected())),
      edge_weight_(copied(edge_weight, shape.edge_channels * shape.scores())),
      att_(copied(att, shape.scores())),
      bias_(copied(bias, shape.width())),
      negative_slope_(negative_slope),
      normalise_(normalise) {}

Attention<float> FixedAttention::call(const GraphEdges& edges, const float* attr, const float* loop_attr) const {
  return {edges.groups(),
          shape_.heads,
          shape_.channels,
          shape_.edge_channels,
          values_.data(),
          shape_.has_att ? values_.data() : sources_.data(),
          targets_.data(),
          attr,
          loop_attr,
          edge_weight_.data(),
          shape_.has_att ? att_.data() : nullptr,
          negative_slope_,
          nullptr,
          0,
          1};
}

// The columns of what was projected, each sort in an array of its own.
void FixedAttention::split() {
  const int64_t width = shape_.width(), scores = shape_.scores(), of_sources = shape_.has_att ? 0 : shape_.heads;
  values_.reserve(num_nodes_ * width);
  sources_.reserve(num_nodes_ * of_sources);
  targets_.reserve(num_nodes_ * scores);
  const float* row = projected_.data();
  for (int64_t node = 0; node < num_nodes_; ++node, row += forward_.n) {
    std::copy_n(row, width, values_.data() + node * width);
    std::copy_n(row + width, of_sources, sources_.data() + node * of_sources);
    std::copy_n(row + width + of_sources, scores, targets_.data() + node * scores);
  }
}

void FixedAttention::finish(const float* raw, float* out) const {
  const int64_t width = shape_.width();
  for (int64_t node = 0; node < num_nodes_; ++node, raw += width, out += width) {
    if (bias_.empty()) std::copy_n(raw, width, out);
    else
      for (int64_t i = 0; i < width; ++i) out[i] = raw[i] + bias_[i];
    if (normalise_) {
      const Moments of = moments(width, [&](int64_t i) { return out[i]; });
      for (int64_t i = 0; i < width; ++i) out[i] = (out[i] - of.mean) * of.rstd;
    }
    for (int64_t i = 0; i < width; ++i) out[i] = out[i] <= 0 ? 0.0f : out[i];  // NaN stays
  }
}

void FixedAttention::forward(const GraphEdges& edges, const float* x, const float* attr, const float* loop_attr,
                             float* out) {
  num_nodes_ = edges.num_nodes();
  projected_.reserve(num_nodes_ * forward_.n);
  const float* bias = projection_bias_.empty() ? nullptr : projection_bias_.data();
  forward_.multiply(x, num_nodes_, {bias, nullptr, 0, 1, false}, projected_.data(), 1);
  split();
  raw_.reserve(num_nodes_ * shape_.width());
  lse_.reserve(num_nodes_ * shape_.heads);
  attention(call(edges, attr, loop_attr), raw_.data(), lse_.data(), 1);
  finish(raw_.data(), out);
}

// The gradient of `out` becomes that of what attention gave.
void FixedAttention::unfinish(const float* raw, const float* out, float* grad) const {
  const int64_t width = shape_.width();
  std::vector<float> line(width);
  for (int64_t node = 0; node < num_nodes_; ++node, raw += width, out += width, grad += width) {
    for (int64_t i = 0; i < width; ++i) grad[i] = out[i] > 0 ? grad[i] : 0.0f;
    if (!normalise_ || is_zero(grad, width)) continue;
    for (int64_t i = 0; i < width; ++i) line[i] = raw[i] + (bias_.empty() ? 0.0f : bias_[i]);
    const Moments of = moments(width, [&](int64_t i) { return line[i]; });
    for (int64_t i = 0; i < width; ++i) line[i] = (line[i] - of.mean) * of.rstd;
    const auto count = static_cast<float>(width);
    const float mean = sum(width, [&](int64_t i) { return grad[i]; }) / count;
    const float slope = sum(width, [&](int64_t i) { return grad[i] * line[i]; }) / count;
    for (int64_t i = 0; i < width; ++i) grad[i] = of.rstd * (grad[i] - mean - line[i] * slope);
  }
}

// The gradient of x from those of all that was projected of it. Nodes that nothing depends on are left out: where a
// score is that of one node, few others count.
void FixedAttention::spread_back(float* grad_x) {
  const int64_t width = shape_.width(), scores = shape_.scores(), of_sources = shape_.has_att ? 0 : shape_.heads;
  std::vector<int64_t> nodes;
  for (int64_t node = 0; node < num_nodes_; ++node) {
    float* row = projected_.data() + static_cast<int64_t>(nodes.size()) * forward_.n;
    std::copy_n(grad_values_.data() + node * width, width, row);
    std::copy_n(grad_sources_.data() + node * of_sources, of_sources, row + width);
    std::copy_n(grad_targets_.data() + node * scores, scores, row + width + of_sources);
    if (!is_zero(row, forward_.n)) nodes.push_back(node);
  }
  const auto count = static_cast<int64_t>(nodes.size());
  backward_.multiply(projected_.data(), count, {nullptr, nullptr, 0, 1, false}, grad_x, 1);
  for (int64_t node = num_nodes_ - 1, at = count - 1; node >= 0; --node) {  // from behind: no row is overwritten unread
    float* row = grad_x + node * forward_.k;
    if (at >= 0 && nodes[at] == node) std::memmove(row, grad_x + at-- * forward_.k, forward_.k * sizeof(float));
    else std::fill_n(row, forward_.k, 0.0f);
  }
}

void FixedAttention::backward(const GraphEdges& edges, const float* attr, const float* loop_attr, const float* out,
                              const float* grad_out, float* grad_x, float* grad_attr) {
  const int64_t width = shape_.width(), features = shape_.edge_channels, scores = shape_.scores();
  const int64_t num_edges = edges.num_edges(), all_edges = num_edges + num_nodes_;
  grad_.reserve(num_nodes_ * width);
  std::copy_n(grad_out, num_nodes_ * width, grad_.data());
  unfinish(raw_.data(), out, grad_.data());
  grad_values_.reserve(num_nodes_ * width);
  grad_sources_.reserve(num_nodes_ * shape_.heads);
  grad_targets_.reserve(num_nodes_ * scores);
  pairs_.reserve(all_edges * 2 * shape_.heads);
  grad_edges_.reserve(num_edges * features);
  grad_loops_.reserve(num_nodes_ * features);
  grad_weight_.reserve(features * scores);
  grad_att_.reserve(scores);
  std::fill_n(grad_edges_.data(), num_edges * features, 0.0f);  // an edge that gave way to a loop is not written
  attention_backward(call(edges, attr, loop_attr),
                     {grad_.data(), raw_.data(), lse_.data(), pairs_.data(), nullptr, 0, grad_values_.data(),
                      shape_.has_att ? nullptr : grad_sources_.data(), grad_targets_.data(),
                      features ? grad_edges_.data() : nullptr, features ? grad_loops_.data() : nullptr,
                      features ? grad_weight_.data() : nullptr, shape_.has_att ? grad_att_.data() : nullptr},
                     1);
  spread_back(grad_x);
  if (!features) return;
  for (int64_t i = 0; i < num_edges * features; ++i) grad_attr[i] += grad_edges_[i];
  edges.add_means_backward(grad_loops_.data(), features, grad_attr);
}

}  // namespace graphmill
