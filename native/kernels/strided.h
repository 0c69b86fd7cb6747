// Rows of floats that begin `stride` apart.
#pragma once
#include <cstdint>

namespace graphmill {

struct StridedRows {
  float* data;
  int64_t stride;
};

struct ConstStridedRows {
  const float* data;
  int64_t stride;
};

}  // namespace graphmill
