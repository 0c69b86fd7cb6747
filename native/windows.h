// Windows of CAN frames as graphs: a node is an id, an edge an id followed by another (tasks/intrusion/data/windows.py
// says which features they have).
#pragma once
#include <cstdint>
#include <vector>

namespace graphmill {

constexpr int64_t kPayloadBytes = 8;
constexpr int64_t kNodeFeatures = kPayloadBytes + 2, kEdgeFeatures = 11;

struct CanFrames {
  int64_t count;
  const uint32_t* ids;     // [count]
  const uint8_t* payload;  // [count, kPayloadBytes]
};

struct WindowGraphs {  // one after another
  std::vector<int64_t> num_nodes, num_edges;
  std::vector<uint32_t> node_ids;         // rising within a graph
  std::vector<int32_t> sources, targets;  // counted within a graph; edges are sorted by both
  std::vector<float> x, edge_attr;
};

// The window of `size` frames that begins at each of `begins`. The id behind a window's end, if there is one, is the
// target of its last frame.
WindowGraphs window_graphs(const CanFrames& frames, const int64_t* begins, int64_t num_windows, int64_t size);

}  // namespace graphmill
