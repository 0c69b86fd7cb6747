// What assignment_features.h sweeps, a row at a time.
#pragma once
#include <cstdint>

namespace graphmill {

struct AssignmentFeatureKernels {
  void (*reduce)(float* out, const double* row, double offset, int64_t n);
  void (*reduce_float)(float* out, const float* row, float offset, int64_t n);
  double (*minimum)(const double* row, int64_t n);
  float (*minimum_float)(const float* row, int64_t n);
  // y [n] = x - v; its `count` smallest with their places.
  void (*nearest)(const float* x, const float* v, int64_t n, int count, float* y, float* values, int32_t* columns);
  // best [width][n], ascending by column of it, takes y - u in; `width` is one of 1, 2, 4, 8.
  void (*keep_smallest)(const float* y, float u, int64_t n, int width, float* best);
  // e [n] = exp(-(x - v - u) * inverse_epsilon). Returns their sum.
  float (*soften)(const float* x, const float* v, float u, float inverse_epsilon, int64_t n, float* e);
};

}  // namespace graphmill
