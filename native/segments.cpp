// Means and sums over segments of rows, products of sparse rows, and their gradients.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "buffer.h"
#include "operators.h"
#include "pool.h"

namespace graphmill {

namespace {

constexpr int64_t kRowsPerChunk = 64;

void for_rows(int64_t count, int64_t chunk, int num_threads, const std::function<void(int64_t, int64_t)>& body) {
  ThreadPool::instance().parallel_for(count, chunk, num_threads, body);
}

}  // namespace

namespace {

// begin(row, to), then the rows of x in the row's segment are added to `to`, then end(row, to, degree).
template <class Begin, class End>
void add_segments(const float* x, int64_t num_columns, const Segments& segments, float* out, int num_threads,
                  const Begin& begin_row, const End& end_row) {
  for_rows(segments.num_rows, kRowsPerChunk, num_threads, [&](int64_t begin, int64_t end) {
    std::vector<int64_t> columns;
    for (int64_t row = begin; row < end; ++row) {
      float* to = out + row * num_columns;
      const int64_t first = segments.indptr[row], degree = segments.indptr[row + 1] - first;
      const int64_t next = first + degree, last = segments.indptr[std::min(row + 2, segments.num_rows)];
      // Of short segments the hardware would meet each row unprepared.
      for (int64_t e = next; e < std::min(last, next + 16); ++e)
        __builtin_prefetch(x + segments.indices[e] * num_columns);
      columns.assign(segments.indices + first, segments.indices + first + degree);
      begin_row(row, to);
      kernels().rows.add(to, x, RowType::kFloat32, num_columns, columns.data(), degree, num_columns);
      end_row(to, degree);
    }
  });
}

}  // namespace

void segment_mean(const float* x, int64_t num_columns, const Segments& segments, float* out, int num_threads) {
  add_segments(
      x, num_columns, segments, out, num_threads, [&](int64_t, float* to) { std::fill_n(to, num_columns, 0.0f); },
      [&](float* to, int64_t degree) {
        kernels().rows.store(to, RowType::kFloat32, to, degree ? 1.0f / static_cast<float>(degree) : 0.0f, num_columns);
      });
}

void self_and_sum(const float* x, float scale, int64_t num_columns, const Segments& segments, float* out,
                  int num_threads) {
  add_segments(
      x, num_columns, segments, out, num_threads,
      [&](int64_t row, float* to) {
        kernels().rows.store(to, RowType::kFloat32, x + row * num_columns, scale, num_columns);
      },
      [](float*, int64_t) {});
}

namespace {

// Sparse rows by their columns, in the order of the rows.
class Transposed {
 public:
  // value(row, e) is the value of entry e of a row.
  template <class Value>
  Transposed(const int64_t* indptr, const int32_t* indices, int64_t num_rows, int64_t num_columns, Value value)
      : starts_(num_columns + 2, 0), rows_(indptr[num_rows] - indptr[0]), values_(indptr[num_rows] - indptr[0]) {
    for (int64_t e = indptr[0]; e < indptr[num_rows]; ++e) ++starts_[indices[e] + 2];
    std::partial_sum(starts_.begin(), starts_.end(),
                     starts_.begin());  // column c's entries begin at starts_[c + 1], which moves on
    for (int64_t row = 0; row < num_rows; ++row) {
      for (int64_t e = indptr[row]; e < indptr[row + 1]; ++e) {
        const int64_t at = starts_[indices[e] + 1]++;
        rows_.data.get()[at] = static_cast<int32_t>(row);
        values_.data.get()[at] = value(row, e);
      }
    }
  }
  SparseRows columns(int64_t begin, int64_t end) const {
    return {starts_.data() + begin, rows_.data.get(), values_.data.get(), end - begin};
  }

 private:
  std::vector<int64_t> starts_;
  Aligned<int32_t> rows_;
  Aligned<float> values_;
};

// Row c of grad_x is the sum, over the segments that hold c, of their mean's gradient / their length. The mean's
// gradient of row r begins at grad_out[r * stride]; own, if given, at own[r * stride], is added to row r itself.
void spread_mean(const float* grad_out, const float* own, int64_t stride, int64_t num_columns, const Segments& segments,
                 float* grad_x, int64_t num_x_rows, int num_threads) {
  const Transposed holders(segments.indptr, segments.indices, segments.num_rows, num_x_rows, [&](int64_t row, int64_t) {
    return 1.0f / static_cast<float>(segments.indptr[row + 1] - segments.indptr[row]);
  });
  const auto spread = [&](int64_t begin, int64_t end, const float* start) {
    if (begin >= end) return;
    kernels().sparse.combine_rows(holders.columns(begin, end), {grad_x + begin * num_columns, num_columns},
                                  {grad_out, stride}, {start, stride}, num_columns);
  };
  const int64_t num_own = own ? segments.num_rows : 0;
  for_rows(num_x_rows, kRowsPerChunk, num_threads, [&](int64_t begin, int64_t end) {
    spread(begin, std::min(end, num_own), own ? own + begin * stride : nullptr);
    spread(std::max(begin, num_own), end, nullptr);
  });
}

}  // namespace

void segment_mean_backward(const float* grad_out, int64_t num_columns, const Segments& segments, float* grad_x,
                           int64_t num_x_rows, int num_threads) {
  spread_mean(grad_out, nullptr, num_columns, num_columns, segments, grad_x, num_x_rows, num_threads);
}

void self_and_mean_backward(const float* grad_out, int64_t num_columns, const Segments& segments, float* grad_x,
                            int64_t num_x_rows, int num_threads) {
  spread_mean(grad_out + num_columns, grad_out, 2 * num_columns, num_columns, segments, grad_x, num_x_rows,
              num_threads);
}

void self_and_sum_backward(const float* grad_out, float scale, int64_t num_columns, const Segments& segments,
                           float* grad_x, int64_t num_x_rows, int num_threads) {
  const Transposed holders(segments.indptr, segments.indices, segments.num_rows, num_x_rows,
                           [](int64_t, int64_t) { return 1.0f; });
  for_rows(num_x_rows, kRowsPerChunk, num_threads, [&](int64_t begin, int64_t end) {
    kernels().sparse.combine_rows(holders.columns(begin, end), {grad_x + begin * num_columns, num_columns},
                                  {grad_out, num_columns}, {nullptr, 0}, num_columns);
    for (int64_t row = begin; row < std::min(end, segments.num_rows); ++row)
      kernels().rows.add_scaled(grad_x + row * num_columns, grad_out + row * num_columns, scale, num_columns);
  });
}

void sparse_multiply(const SparseMatrix& x, const float* w, int64_t n, float* out, int num_threads) {
  for_rows(x.num_rows, 4 * kRowsPerChunk, num_threads, [&](int64_t begin, int64_t end) {
    kernels().sparse.combine_rows({x.indptr + begin, x.indices, x.values, end - begin}, {out + begin * n, n}, {w, n},
                                  {nullptr, 0}, n);
  });
}

void sparse_multiply_backward(const SparseMatrix& x, const float* grad_out, int64_t n, float* grad_w,
                              int64_t num_features, int num_threads) {
  const Transposed features(x.indptr, x.indices, x.num_rows, num_features,
                            [&](int64_t, int64_t e) { return x.values[e]; });
  for_rows(num_features, kRowsPerChunk, num_threads, [&](int64_t begin, int64_t end) {
    kernels().sparse.combine_rows(features.columns(begin, end), {grad_w + begin * n, n}, {grad_out, n}, {nullptr, 0},
                                  n);
  });
}

}  // namespace graphmill
