// The assignment problem: one problem, a batch over threads, a certificate.
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cmath>
#include <string>

#include "assignment.h"
#include "bindings.h"
#include "pool.h"

namespace graphmill {

namespace {

template <class C>
using Dense = Array<const C, 2>;
template <class W>
using Line = Array<W, 1>;

template <class C, class W>
struct Problem {
  AssignmentCosts<C> costs;
  W *u, *v;
  int64_t* columns;
};

template <class C, class W>
Problem<C, W> dense_problem(const Dense<C>& costs, Line<W>& u, Line<W>& v, Line<int64_t>& columns) {
  const int64_t num_rows = length(costs), num_columns = width(costs);
  require(num_rows <= num_columns, "more rows than columns: transpose first");
  require(num_columns < INT32_MAX, "columns must be fewer than 2^31");
  require(length(u) == num_rows && length(columns) == num_rows && length(v) == num_columns,
          "u and columns must be [rows], v [columns]");
  return {{num_rows, num_columns, costs.data(), nullptr, nullptr}, u.data(), v.data(), columns.data()};
}

template <class C, class W>
Problem<C, W> sparse_problem(const Ids& indptr, const Locals& indices, const Array<const C, 1>& costs, Line<W>& u,
                             Line<W>& v, Line<int64_t>& columns) {
  const Segments rows = segments_of(indptr, indices);
  require(rows.num_rows <= length(v) && length(v) < INT32_MAX, "more rows than columns: transpose first");
  require(length(costs) == length(indices), "indices and costs differ in length");
  require(length(u) == rows.num_rows && length(columns) == rows.num_rows, "u and columns must be [rows]");
  require(rows.num_rows == 0 || indptr.data()[0] == 0, "indptr must begin with 0");
  for (int64_t i = 0; i < rows.num_rows; ++i) require(indptr.data()[i] <= indptr.data()[i + 1], "indptr must not fall");
  for (int64_t e = 0; e < indptr.data()[rows.num_rows]; ++e)
    require(indices.data()[e] >= 0 && indices.data()[e] < length(v), "an index lies outside the columns");
  return {{rows.num_rows, length(v), costs.data(), indptr.data(), indices.data()}, u.data(), v.data(), columns.data()};
}

AssignmentOptions options_of(int start, int64_t candidates) {
  require(start >= 0 && start <= 3 && candidates >= 1, "start is 0 to 3, candidates at least 1");
  return {static_cast<AssignmentStart>(start), candidates};
}

nb::dict facts(const AssignmentWork& work) {
  nb::dict out;
  out["free_after_greedy"] = work.free_after_greedy;
  out["free_after_auction"] = work.free_after_auction;
  out["free_after_reduction"] = work.free_after_reduction;
  out["bids"] = work.bids;
  out["row_scans"] = work.row_scans;
  out["rows_chosen"] = work.rows_chosen;
  out["rows_widened"] = work.rows_widened;
  out["column_scans"] = work.column_scans;
  return out;
}

template <class C, class W>
void require_columns(const Problem<C, W>& problem, const AssignmentOptions& options) {
  if (options.start != AssignmentStart::kPairs) return;
  for (int64_t i = 0; i < problem.costs.num_rows; ++i)
    require(problem.columns[i] >= -1 && problem.columns[i] < problem.costs.num_columns,
            "a pair lies outside the costs");
}

// The largest potential without its sign; NaN where one is.
template <class C, class W>
double largest_potential(const Problem<C, W>& problem) {
  double largest = 0;
  const auto see = [&](const W* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const double value = std::abs(static_cast<double>(values[i]));
      if (value > largest || std::isnan(value)) largest = value;
      if (std::isnan(largest)) return;
    }
  };
  see(problem.u, problem.costs.num_rows);
  if (!std::isnan(largest)) see(problem.v, problem.costs.num_columns);
  return largest;
}

// None: infeasible.
template <class C, class W>
nb::object solve(const Problem<C, W>& problem, const AssignmentOptions& options) {
  require_columns(problem, options);
  AssignmentWork work{};
  bool is_solved;
  {
    nb::gil_scoped_release release;
    is_solved = solve_assignment<C, W>(problem.costs, options, problem.u, problem.v, problem.columns, &work);
  }
  if (!is_solved) return nb::none();
  nb::dict found = facts(work);
  found["largest_potential"] = largest_potential(problem);
  return found;
}

template <class C, class W>
nb::object solve_dense_py(const Dense<C>& costs, int start, int64_t candidates, Line<W> u, Line<W> v,
                          Line<int64_t> columns) {
  return solve<C, W>(dense_problem<C, W>(costs, u, v, columns), options_of(start, candidates));
}

template <class C, class W>
nb::object solve_sparse_py(const Ids& indptr, const Locals& indices, const Array<const C, 1>& costs, int start,
                           Line<W> u, Line<W> v, Line<int64_t> columns) {
  return solve<C, W>(sparse_problem<C, W>(indptr, indices, costs, u, v, columns), options_of(start, 1));
}

// Problems of a batch over threads, one each at a time. Which of them are solved.
template <class C, class W>
std::vector<bool> solve_batch_py(const std::vector<Dense<C>>& costs, int start, const std::vector<int64_t>& candidates,
                                 std::vector<Line<W>> u, std::vector<Line<W>> v, std::vector<Line<int64_t>> columns,
                                 int num_threads) {
  require(u.size() == costs.size() && v.size() == costs.size() && columns.size() == costs.size() &&
              candidates.size() == costs.size(),
          "costs, candidates, u, v and columns differ in length");
  std::vector<Problem<C, W>> problems;
  problems.reserve(costs.size());
  for (size_t q = 0; q < costs.size(); ++q) problems.push_back(dense_problem<C, W>(costs[q], u[q], v[q], columns[q]));
  std::vector<AssignmentOptions> options;
  options.reserve(candidates.size());
  for (const int64_t wanted : candidates) options.push_back(options_of(start, wanted));
  std::vector<char> solved(costs.size(), 0);
  std::vector<std::string> errors(costs.size());
  {
    nb::gil_scoped_release release;
    ThreadPool::instance().parallel_for(
        static_cast<int64_t>(problems.size()), 1, num_threads, [&](int64_t begin, int64_t end) {
          for (int64_t q = begin; q < end; ++q) {
            const auto at = static_cast<size_t>(q);
            AssignmentWork work{};
            try {
              solved[at] = solve_assignment<C, W>(problems[at].costs, options[at], problems[at].u, problems[at].v,
                                                  problems[at].columns, &work);
            } catch (const std::exception& error) {
              errors[at] = error.what();
            }
          }
        });
  }
  for (size_t q = 0; q < errors.size(); ++q)
    if (!errors[q].empty()) throw std::invalid_argument("problem " + std::to_string(q) + ": " + errors[q]);
  return {solved.begin(), solved.end()};
}

template <class C, class W>
nb::tuple certify_dense_py(const Dense<C>& costs, Line<W> u, Line<W> v, Line<int64_t> columns) {
  const Problem<C, W> problem = dense_problem<C, W>(costs, u, v, columns);
  const auto found = certify_assignment<C, W>(problem.costs, problem.u, problem.v, problem.columns);
  return nb::make_tuple(found.largest_violation, found.largest_slack);
}

template <class C, class W>
nb::tuple certify_sparse_py(const Ids& indptr, const Locals& indices, const Array<const C, 1>& costs, Line<W> u,
                            Line<W> v, Line<int64_t> columns) {
  const Problem<C, W> problem = sparse_problem<C, W>(indptr, indices, costs, u, v, columns);
  const auto found = certify_assignment<C, W>(problem.costs, problem.u, problem.v, problem.columns);
  return nb::make_tuple(found.largest_violation, found.largest_slack);
}

template <class C, class W>
void bind_costs(nb::module_& m) {
  m.def("solve_assignment", &solve_dense_py<C, W>, nb::arg("costs").noconvert(), nb::arg("start"),
        nb::arg("candidates"), nb::arg("u").noconvert(), nb::arg("v").noconvert(), nb::arg("columns").noconvert());
  m.def("solve_sparse_assignment", &solve_sparse_py<C, W>, nb::arg("indptr").noconvert(),
        nb::arg("indices").noconvert(), nb::arg("costs").noconvert(), nb::arg("start"), nb::arg("u").noconvert(),
        nb::arg("v").noconvert(), nb::arg("columns").noconvert());
  m.def("solve_assignments", &solve_batch_py<C, W>, nb::arg("costs").noconvert(), nb::arg("start"),
        nb::arg("candidates"), nb::arg("u").noconvert(), nb::arg("v").noconvert(), nb::arg("columns").noconvert(),
        nb::arg("num_threads"));
  m.def("certify_assignment", &certify_dense_py<C, W>, nb::arg("costs").noconvert(), nb::arg("u").noconvert(),
        nb::arg("v").noconvert(), nb::arg("columns").noconvert());
  m.def("certify_sparse_assignment", &certify_sparse_py<C, W>, nb::arg("indptr").noconvert(),
        nb::arg("indices").noconvert(), nb::arg("costs").noconvert(), nb::arg("u").noconvert(),
        nb::arg("v").noconvert(), nb::arg("columns").noconvert());
}

}  // namespace

void bind_assignment(nb::module_& m) {
  bind_costs<float, double>(m);
  bind_costs<double, double>(m);
  bind_costs<int64_t, int64_t>(m);
}

}  // namespace graphmill
