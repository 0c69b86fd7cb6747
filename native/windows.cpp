// Compiled without fused multiply-adds (see CMakeLists.txt): features are the same on every processor.
#include "windows.h"

#include <algorithm>
#include <cmath>

namespace graphmill {

namespace {

struct Node {
  int64_t count = 0, last = 0;  // frames with the id, and the position of the last of them
  int64_t sums[kPayloadBytes] = {};
  int64_t degree = 0;  // ends of edges
};

struct Pair {
  int64_t ends;  // source * num_nodes + target
  int64_t position;
  bool operator<(const Pair& other) const { return ends != other.ends ? ends < other.ends : position < other.position; }
};

class Window {
 public:
  Window(const CanFrames& frames, int64_t begin, int64_t size, WindowGraphs& graphs)
      : frames_(frames), begin_(begin), size_(size), graphs_(graphs) {}

  void add() {
    const int64_t with_next = std::min(size_ + 1, frames_.count - begin_);
    ids_.assign(frames_.ids + begin_, frames_.ids + begin_ + with_next);
    std::sort(ids_.begin(), ids_.end());
    ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
    nodes_.assign(ids_.size(), Node{});
    numbers_.resize(with_next);
    for (int64_t i = 0; i < with_next; ++i)
      numbers_[i] = std::lower_bound(ids_.begin(), ids_.end(), frames_.ids[begin_ + i]) - ids_.begin();
    count_frames();
    find_edges(with_next - 1);
    add_nodes();
    add_edges(with_next - 1);
  }

 private:
  void count_frames() {
    for (int64_t i = 0; i < size_; ++i) {
      Node& node = nodes_[numbers_[i]];
      ++node.count;
      node.last = i;
      const uint8_t* payload = frames_.payload + (begin_ + i) * kPayloadBytes;
      for (int64_t byte = 0; byte < kPayloadBytes; ++byte) node.sums[byte] += payload[byte];
    }
  }

  // Pairs, sorted, and where those of each edge begin.
  void find_edges(int64_t num_pairs) {
    const auto num_nodes = static_cast<int64_t>(nodes_.size());
    pairs_.clear();
    for (int64_t i = 0; i < num_pairs; ++i) pairs_.push_back({numbers_[i] * num_nodes + numbers_[i + 1], i});
    std::sort(pairs_.begin(), pairs_.end());
    edges_.clear();
    for (int64_t i = 0; i < num_pairs; ++i) {
      if (i && pairs_[i].ends == pairs_[i - 1].ends) continue;
      edges_.push_back(i);
      ++nodes_[pairs_[i].ends / num_nodes].degree;
      ++nodes_[pairs_[i].ends % num_nodes].degree;
    }
    edges_.push_back(num_pairs);
  }

  void add_nodes() {
    int64_t least = size_, most = 0;
    for (const Node& node : nodes_) {
      if (!node.count) continue;
      least = std::min(least, node.count);
      most = std::max(most, node.count);
    }
    const auto range = static_cast<double>(std::max<int64_t>(most - least, 1));
    for (const Node& node : nodes_) {
      const auto count = static_cast<double>(node.count);
      for (int64_t byte = 0; byte < kPayloadBytes; ++byte)
        graphs_.x.push_back(node.count ? static_cast<float>(static_cast<double>(node.sums[byte]) / (count * 255.0))
                                       : 0);
      graphs_.x.push_back(node.count ? static_cast<float>(static_cast<double>(node.count - least) / range) : 0);
      graphs_.x.push_back(
          node.count ? static_cast<float>(static_cast<double>(node.last) / static_cast<double>(size_ - 1)) : 0);
    }
    graphs_.node_ids.insert(graphs_.node_ids.end(), ids_.begin(), ids_.end());
    graphs_.num_nodes.push_back(static_cast<int64_t>(nodes_.size()));
  }

  bool has_edge(int64_t ends) const {
    const auto found = std::lower_bound(pairs_.begin(), pairs_.end(), Pair{ends, 0});
    return found != pairs_.end() && found->ends == ends;
  }

  void add_edges(int64_t num_pairs) {
    const auto num_nodes = static_cast<int64_t>(nodes_.size());
    const auto length = static_cast<double>(num_pairs);
    for (size_t edge = 0; edge + 1 < edges_.size(); ++edge) {
      const int64_t first = edges_[edge], end = edges_[edge + 1], ends = pairs_[first].ends;
      const int64_t source = ends / num_nodes, target = ends % num_nodes;
      int64_t squares = 0;
      for (int64_t i = first + 1; i < end; ++i) {
        const int64_t gap = pairs_[i].position - pairs_[i - 1].position;
        squares += gap * gap;
      }
      const auto count = static_cast<double>(end - first);
      const auto begin_at = static_cast<double>(pairs_[first].position);
      const auto end_at = static_cast<double>(pairs_[end - 1].position);
      const double num_gaps = std::max(count - 1, 1.0), mean = (end_at - begin_at) / num_gaps;
      const double std = std::sqrt(std::max(static_cast<double>(squares) / num_gaps - mean * mean, 0.0));
      const auto from = static_cast<double>(nodes_[source].degree), to = static_cast<double>(nodes_[target].degree);
      const double features[kEdgeFeatures] = {count,
                                              count / length,
                                              mean,
                                              std,
                                              1 / (1 + std),
                                              begin_at / length,
                                              end_at / length,
                                              (end_at - begin_at) / length,
                                              has_edge(target * num_nodes + source) ? 1.0 : 0.0,
                                              from * to,
                                              from / to};
      for (const double feature : features) graphs_.edge_attr.push_back(static_cast<float>(feature));
      graphs_.sources.push_back(static_cast<int32_t>(source));
      graphs_.targets.push_back(static_cast<int32_t>(target));
    }
    graphs_.num_edges.push_back(static_cast<int64_t>(edges_.size()) - 1);
  }

  const CanFrames& frames_;
  const int64_t begin_, size_;
  WindowGraphs& graphs_;
  // Reused from window to window.
  static thread_local std::vector<uint32_t> ids_;
  static thread_local std::vector<int64_t> numbers_, edges_;
  static thread_local std::vector<Node> nodes_;
  static thread_local std::vector<Pair> pairs_;
};

thread_local std::vector<uint32_t> Window::ids_;
thread_local std::vector<int64_t> Window::numbers_, Window::edges_;
thread_local std::vector<Node> Window::nodes_;
thread_local std::vector<Pair> Window::pairs_;

}  // namespace

WindowGraphs window_graphs(const CanFrames& frames, const int64_t* begins, int64_t num_windows, int64_t size) {
  WindowGraphs graphs;
  for (int64_t window = 0; window < num_windows; ++window) Window(frames, begins[window], size, graphs).add();
  return graphs;
}

}  // namespace graphmill
