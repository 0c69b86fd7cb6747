// Scores of a tile: several queries times several rows of a table. Compiled once per instruction set.
//
// A score is the dot product of two rows, summed one factor after the other with the instruction set's multiply-add, in
// every one of these kernels: the same two rows have the same bits wherever they meet.
#pragma once
#include <cstdint>

namespace graphmill {

struct RankingKernels {
  int tile_queries;
  int tile_rows;  // of the table; at most 32, for a row is a bit

  // `count` rows of `width` floats, those of `ids` or, where null, the first: packed[width][lanes], zero-padded.
  void (*pack)(float* packed, int64_t lanes, const float* rows, const int64_t* ids, int64_t count, int64_t width);

  // queries [width][tile_queries] and rows [width][tile_rows] as packed above. Of the first `num_queries`, above[q] and
  // tied[q] grow by the scores above own[q] and equal to it, among the rows whose bit of live[q] is set. Returns the
  // queries (bits) with a score among those that is NaN.
  uint32_t (*count_tile)(const float* queries, const float* rows, int64_t width, const float* own, const uint32_t* live,
                         int64_t num_queries, int64_t* above, int64_t* tied);

  // All scores [tile_queries][tile_rows]; chosen[q]: the rows (bits) whose score is not at or below bounds[q]. NaN is
  // at or below nothing.
  void (*score_tile)(const float* queries, const float* rows, int64_t width, const float* bounds, float* scores,
                     uint32_t* chosen);

  // One query [width] and rows as packed above: scores [tile_rows].
  void (*score_rows)(const float* query, const float* rows, int64_t width, float* scores);
};

}  // namespace graphmill
