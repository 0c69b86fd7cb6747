// Ranks of answers and the best rows of a table.
#include <nanobind/stl/optional.h>

#include "bindings.h"
#include "ranking.h"

namespace graphmill {

namespace {

using Counts = Array<int64_t, 1>;

FloatRows rows_of(const Floats& rows) { return {rows.data(), length(rows), width(rows)}; }

void check_queries(const Floats& queries, const Floats& table) {
  require(width(queries) == width(table), "queries and table must have rows of one width");
  require(length(table) < INT32_MAX, "at most 2^31 - 2 rows");
}

void check_ids(const int64_t* ids, int64_t count, const Floats& table) {
  for (int64_t i = 0; i < count; ++i)
    require(static_cast<uint64_t>(ids[i]) < static_cast<uint64_t>(length(table)), "an id is no row of the table");
}

LeftOut left_out_of(const std::optional<Ids>& starts, const std::optional<Ids>& ends, const std::optional<Locals>& ids,
                    int64_t num_queries) {
  require(starts.has_value() == ends.has_value() && starts.has_value() == ids.has_value(),
          "what is left out is starts, ends and ids");
  if (!starts) return {nullptr, nullptr, nullptr};
  require(length(*starts) == num_queries && length(*ends) == num_queries, "one start and end for each query");
  for (int64_t q = 0; q < num_queries; ++q)
    require(0 <= starts->data()[q] && starts->data()[q] <= ends->data()[q] && ends->data()[q] <= length(*ids),
            "a row of what is left out lies outside the ids");
  return {starts->data(), ends->data(), ids->data()};
}

RankCounts counts_of(Counts& above, Counts& tied, Counts& candidates, int64_t num_queries) {
  require(length(above) == num_queries && length(tied) == num_queries && length(candidates) == num_queries,
          "above, tied and candidates must be [num_queries]");
  return {above.data(), tied.data(), candidates.data()};
}

int64_t count_above_py(const Floats& queries, const Ids& answers, const Floats& table, std::optional<Ids> starts,
                       std::optional<Ids> ends, std::optional<Locals> ids, Counts above, Counts tied, Counts candidates,
                       int num_threads) {
  check_queries(queries, table);
  require(length(answers) == length(queries), "one answer for each query");
  check_ids(answers.data(), length(answers), table);
  const LeftOut left_out = left_out_of(starts, ends, ids, length(queries));
  const RankCounts out = counts_of(above, tied, candidates, length(queries));
  nb::gil_scoped_release release;
  return count_above(rows_of(queries), answers.data(), rows_of(table), left_out, out, num_threads);
}

int64_t count_above_given_py(const Floats& queries, const Ids& answers, const Floats& table,
                             const Array<const int64_t, 2>& given, Counts above, Counts tied, Counts candidates,
                             int num_threads) {
  check_queries(queries, table);
  require(length(answers) == length(queries) && length(given) == length(queries),
          "one answer and one row of candidates for each query");
  check_ids(answers.data(), length(answers), table);
  check_ids(given.data(), length(given) * width(given), table);
  const RankCounts out = counts_of(above, tied, candidates, length(queries));
  nb::gil_scoped_release release;
  return count_above_given(rows_of(queries), answers.data(), rows_of(table), given.data(), width(given), out,
                           num_threads);
}

int64_t best_rows_py(const Floats& queries, const Floats& table, std::optional<Ids> starts, std::optional<Ids> ends,
                     std::optional<Locals> left_out_ids, Array<int64_t, 2> ids, Array<float, 2> scores,
                     int num_threads) {
  check_queries(queries, table);
  const int64_t k = width(ids);
  require(k >= 1 && has_shape(ids, length(queries), k) && has_shape(scores, length(queries), k),
          "ids and scores must be [num_queries, k]");
  const LeftOut left_out = left_out_of(starts, ends, left_out_ids, length(queries));
  nb::gil_scoped_release release;
  return best_rows(rows_of(queries), rows_of(table), left_out, k, ids.data(), scores.data(), num_threads);
}

}  // namespace

void bind_ranking(nb::module_& m) {
  using namespace nb::literals;
  m.def("count_above", &count_above_py, nb::kw_only(), "queries"_a, "answers"_a, "table"_a, "starts"_a.none(),
        "ends"_a.none(), "ids"_a.none(), "above"_a.noconvert(), "tied"_a.noconvert(), "candidates"_a.noconvert(),
        "num_threads"_a, "Rows that score above each answer, or as much. Returns the first query with NaN, or -1.");
  m.def("count_above_given", &count_above_given_py, nb::kw_only(), "queries"_a, "answers"_a, "table"_a, "given"_a,
        "above"_a.noconvert(), "tied"_a.noconvert(), "candidates"_a.noconvert(), "num_threads"_a,
        "The same among given rows [num_queries, num_candidates].");
  m.def("best_rows", &best_rows_py, nb::kw_only(), "queries"_a, "table"_a, "starts"_a.none(), "ends"_a.none(),
        "left_out"_a.none(), "ids"_a.noconvert(), "scores"_a.noconvert(), "num_threads"_a,
        "The best rows of each query and their scores. Returns the first query with NaN, or -1.");
}

}  // namespace graphmill
