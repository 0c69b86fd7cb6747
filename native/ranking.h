// The rank of an answer among all rows of a table, or among given ones, and the best rows: scores are dot products that
// are counted as they are made, never stored.
#pragma once
#include <cstdint>

namespace graphmill {

struct FloatRows {
  const float* data;  // [count, width]
  int64_t count, width;
};

// Rows of the table that are not among the candidates of a query: ids[starts[q]] to ids[ends[q] - 1], ascending.
// Queries may share them.
struct LeftOut {
  const int64_t* starts;  // [num_queries], or null: nothing is left out
  const int64_t* ends;
  const int32_t* ids;
};

struct RankCounts {  // each [num_queries]
  int64_t* above;
  int64_t* tied;
  int64_t* candidates;  // the answer is none of them
};

// What all three return: the first query that has a score which is NaN, or -1. Results are the same for any number of
// threads, and for any share of the queries.
int64_t count_above(const FloatRows& queries, const int64_t* answers, const FloatRows& table, const LeftOut& left_out,
                    const RankCounts& out, int num_threads);

// Among `candidates` [num_queries, num_candidates]; one that stands twice counts twice.
int64_t count_above_given(const FloatRows& queries, const int64_t* answers, const FloatRows& table,
                          const int64_t* candidates, int64_t num_candidates, const RankCounts& out, int num_threads);

// The `k` best rows, ids [num_queries, k], and their scores: descending, equal ones by ascending id; -1 and -infinity
// where there are fewer.
int64_t best_rows(const FloatRows& queries, const FloatRows& table, const LeftOut& left_out, int64_t k, int64_t* ids,
                  float* scores, int num_threads);

}  // namespace graphmill
