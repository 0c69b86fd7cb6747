#include "operators.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "buffer.h"
#include "pool.h"

namespace graphmill {

namespace {

constexpr int64_t kRowsPerChunk = 64;

void for_rows(int64_t count, int64_t chunk, int num_threads, const std::function<void(int64_t, int64_t)>& body) {
  ThreadPool::instance().parallel_for(count, chunk, num_threads, body);
}

int64_t bytes_of(RowType type) { return type == RowType::kFloat32 ? 4 : 2; }

// Uninitialised, reused by the calling thread.
float* scratch_floats(int64_t count) {
  thread_local std::unique_ptr<float[]> memory;
  thread_local int64_t capacity = 0;
  if (count > capacity) {
    memory.reset(new float[count]);
    capacity = count;
  }
  return memory.get();
}

// A strip of a matrix's columns. Its rows are far apart, so the hardware does not detect the pattern: prefetch them.
struct Strip {
  const float* matrix;
  int64_t num_rows, num_columns, column, width;

  const float* row(int64_t number) const { return matrix + number * num_columns + column; }
  // Rows [begin, end) are on their way to the second cache when they are needed.
  void fetch(int64_t begin, int64_t end) const {
    for (int64_t number = begin; number < std::min(end, num_rows); ++number)
      for (int64_t f = 0; f < width + 15; f += 16) __builtin_prefetch(row(number) + std::min(f, width - 1), 0, 2);
  }
  void copy(float* out, int64_t out_stride, int64_t begin, int64_t end) const {
    for (int64_t number = begin; number < end; ++number, out += out_stride) std::copy_n(row(number), width, out);
  }
};

}  // namespace

void gather_rows(const Matrix& table, const int64_t* ids, int64_t num_ids, void* out, RowType out_type,
                 int num_threads) {
  const int64_t n = table.num_columns, row_bytes = n * bytes_of(table.type), out_bytes = n * bytes_of(out_type);
  const int64_t id_bytes = table.id_step * bytes_of(table.type);
  const char* rows = static_cast<const char*>(table.data);
  const int64_t ahead = row_bytes <= 512 ? 4 : 2;  // of wide rows two are as many lines as can be on their way
  for_rows(num_ids, kRowsPerChunk, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + ahead < end)
        for (int64_t b = 0; b < row_bytes; b += 64) __builtin_prefetch(rows + ids[i + ahead] * id_bytes + b);
      kernels().rows.convert(static_cast<char*>(out) + i * out_bytes, out_type, rows + ids[i] * id_bytes, table.type,
                             n);
    }
  });
}

void gather_self_and_mean(const Matrix& table, const int64_t* row_ids, const int64_t* ids, const Segments& segments,
                          void* out, RowType out_type, int num_threads) {
  const int64_t n = table.num_columns, half_bytes = n * bytes_of(out_type);
  const int64_t id_bytes = table.id_step * bytes_of(table.type);
  const char* rows = static_cast<const char*>(table.data);
  for_rows(segments.num_rows, kRowsPerChunk, num_threads, [&](int64_t begin, int64_t end) {
    float* sum = scratch_floats(n);
    std::vector<int64_t> neighbours;
    for (int64_t row = begin; row < end; ++row) {
      char* to = static_cast<char*>(out) + row * 2 * half_bytes;
      const int64_t first = segments.indptr[row], degree = segments.indptr[row + 1] - first;
      neighbours.resize(degree);
      for (int64_t i = 0; i < degree; ++i)
        neighbours[i] = ids ? ids[segments.indices[first + i]] : segments.indices[first + i];
      kernels().rows.convert(to, out_type, rows + (row_ids ? row_ids[row] : row) * id_bytes, table.type, n);
      std::fill_n(sum, n, 0.0f);
      kernels().rows.add(sum, table.data, table.type, table.id_step, neighbours.data(), degree, n);
      kernels().rows.store(to + half_bytes, out_type, sum, degree ? 1.0f / static_cast<float>(degree) : 0.0f, n);
    }
  });
}

void gather_sparse_rows(const SparseMatrix& table, const int64_t* ids, int64_t num_ids, const int64_t* out_indptr,
                        int32_t* out_indices, float* out_values, int num_threads) {
  for_rows(num_ids, 16 * kRowsPerChunk, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = table.indptr[ids[i]], count = out_indptr[i + 1] - out_indptr[i];
      std::copy_n(table.indices + first, count, out_indices + out_indptr[i]);
      std::copy_n(table.values + first, count, out_values + out_indptr[i]);
    }
  });
}

void linear(const float* a, int64_t m, int64_t k, const float* w, int64_t n, const Epilogue& epilogue, float* out,
            int num_threads) {
  const ProductKernels& products = kernels().products;
  const int64_t num_panels = (n + products.tile_columns - 1) / products.tile_columns;
  const Aligned<float> packed(num_panels * products.tile_columns * k);
  products.pack_weights(packed.data.get(), w, n, k);
  const int64_t chunk = 8 * products.tile_rows;
  for_rows(m, chunk, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row += chunk)
      products.multiply(out + row * n, a + row * k, k, packed.data.get(), std::min(chunk, end - row), n, k, row,
                        epilogue);
  });
}

namespace {

// out: the sum over blocks of what `sums` holds of each, `stride` apart, n values; one order, any number of threads.
void add_up(const float* sums, int64_t num_blocks, int64_t stride, int64_t n, float* out) {
  std::fill_n(out, n, 0.0f);
  for (int64_t block = 0; block < num_blocks; ++block) kernels().rows.add_scaled(out, sums + block * stride, 1.0f, n);
}

constexpr int64_t kBlock = 192;  // rows summed in registers before the result is touched
// Rows [begin, end) of g and a: dw [n, k] += gᵀ · a, db [n] += the sum of g.
void add_product(const float* g, const float* a, int64_t begin, int64_t end, int64_t n, int64_t k, float* dw,
                 float* db) {
  const ProductKernels& products = kernels().products;
  const int64_t width = (n + products.tile_rows - 1) / products.tile_rows * products.tile_rows;
  const Aligned<float> packed(kBlock * width), strip(kBlock * products.tile_columns), line(n + products.tile_rows);
  for (int64_t row = begin; row < end; row += kBlock) {
    const int64_t last = std::min(row + kBlock, end);
    products.pack_gradients(packed.data.get(), g, row, last, n, db, line.data.get());
    for (int64_t column = 0; column < k; column += products.tile_columns)
      products.add_outer(dw, packed.data.get(), a, k, row, last, n, k, column, strip.data.get());
  }
}

// Of few columns: a fixed number of shares of the rows, each with a sum of its own, added up in their order.
void narrow_backward(const float* g, const float* a, int64_t m, int64_t n, int64_t k, float* dw, float* db,
                     int num_threads) {
  const int64_t num_sums = n * (k + 1), most = std::clamp<int64_t>((1 << 20) / num_sums, 1, 16);
  const int64_t rows = (m / most / kBlock + 1) * kBlock, num_shares = (m + rows - 1) / rows;
  const Aligned<float> sums(num_shares * num_sums);
  for_rows(num_shares, 1, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t share = begin; share < end; ++share) {
      float* own = sums.data.get() + share * num_sums;
      std::fill_n(own, num_sums, 0.0f);
      add_product(g, a, share * rows, std::min((share + 1) * rows, m), n, k, own, own + n * k);
    }
  });
  add_up(sums.data.get(), num_shares, num_sums, n * k, dw);
  add_up(sums.data.get() + n * k, num_shares, num_sums, n, db);
}

void dense_backward(const float* g, const float* a, int64_t m, int64_t n, int64_t k, float* dw, float* db,
                    int num_threads) {
  const ProductKernels& products = kernels().products;
  if (k <= 4 * products.tile_columns) return narrow_backward(g, a, m, n, k, dw, db, num_threads);  // else one chunk
  const int64_t num_panels = (n + products.tile_rows - 1) / products.tile_rows, width = num_panels * products.tile_rows;
  const int64_t num_blocks = (m + kBlock - 1) / kBlock;
  const Aligned<float> packed(m * width), sums(num_blocks * n);
  for_rows(m, kBlock, num_threads, [&](int64_t begin, int64_t end) {
    float* line = scratch_floats(n + products.tile_rows);
    for (int64_t row = begin; row < end; row += kBlock) {
      float* block_sums = sums.data.get() + row / kBlock * n;
      std::fill_n(block_sums, n, 0.0f);
      products.pack_gradients(packed.data.get() + row * width, g, row, std::min(row + kBlock, end), n, block_sums,
                              line);
    }
  });
  add_up(sums.data.get(), num_blocks, n, n, db);
  std::fill_n(dw, n * k, 0.0f);
  const int64_t num_strips = (k + products.tile_columns - 1) / products.tile_columns;
  // Each chunk of strips reads all of `packed`: few chunks, but two a thread, for a core may be shared.
  const int64_t chunk = std::max<int64_t>(4, (num_strips + 2 * num_threads - 1) / (2 * num_threads));
  for_rows(num_strips, chunk, num_threads, [&](int64_t begin, int64_t end) {
    float* scratch = scratch_floats(kBlock * products.tile_columns);
    for (int64_t row = 0; row < m; row += kBlock)
      for (int64_t strip = begin; strip < end; ++strip)
        products.add_outer(dw, packed.data.get() + row * width, a, k, row, std::min(row + kBlock, m), n, k,
                           strip * products.tile_columns, scratch);
  });
}

constexpr int64_t kSparseBlock = 64;  // rows of a strip of `a` that stay in the first cache

// What is left of a gradient [m, n] through dropout(relu(.)), by blocks of rows and, within a block, by columns.
class KeptGradient {
 public:
  KeptGradient(const float* g, const float* out, float scale, int64_t m, int64_t n, int num_threads)
      : n_(n),
        num_blocks_((m + kSparseBlock - 1) / kSparseBlock),
        values_(m * n),
        sums_(num_blocks_ * n),
        rows_(m * n),
        starts_(num_blocks_ * (n + 1)) {
    for_rows(num_blocks_, 1, num_threads, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kSparseBlock * n;
        float* block_sums = sums_.data.get() + block * n;
        std::fill_n(block_sums, n, 0.0f);
        kernels().sparse.collect_kept(starts_of(block), rows_.data.get() + first, values_.data.get() + first, g + first,
                                      out + first, scale, std::min(kSparseBlock, m - block * kSparseBlock), n,
                                      block_sums);
      }
    });
  }
  int64_t num_blocks() const { return num_blocks_; }
  const float* sums() const { return sums_.data.get(); }  // [num_blocks, n]
  // Columns [first, first + count) of a block, as rows of a sparse matrix over the block's rows.
  SparseRows columns(int64_t block, int64_t first, int64_t count) const {
    const int64_t at = block * kSparseBlock * n_;
    return {starts_of(block) + first, rows_.data.get() + at, values_.data.get() + at, count};
  }

 private:
  int64_t* starts_of(int64_t block) const { return starts_.data.get() + block * (n_ + 1); }

  int64_t n_, num_blocks_;
  Aligned<float> values_, sums_;  // of the pages of `values_` only those that are written are allocated
  Aligned<int32_t> rows_;
  Aligned<int64_t> starts_;
};

// total [count, width] = rows [first, first + count) of dw, in the columns of `strip`; `columns` [kSparseBlock, width].
void add_strip(const KeptGradient& kept, const Strip& strip, int64_t first, int64_t count, float* columns,
               float* total) {
  const SparseKernels& sparse = kernels().sparse;
  constexpr int64_t kParts = 8;  // of a block's work, with a part of the next block fetched before each
  const int64_t m = strip.num_rows, width = sparse.strip_columns, tile = kernels().products.tile_columns;
  const int64_t whole_vectors = std::min(width, (strip.width + tile - 1) / tile * tile);
  std::fill_n(columns, kSparseBlock * width, 0.0f);
  std::fill_n(total, count * width, 0.0f);
  strip.fetch(0, kSparseBlock);
  for (int64_t block = 0; block < kept.num_blocks(); ++block) {
    const int64_t row = block * kSparseBlock, next = row + kSparseBlock;
    strip.copy(columns, width, row, std::min(next, m));
    for (int64_t part = 0; part < kParts; ++part) {
      strip.fetch(next + part * kSparseBlock / kParts, next + (part + 1) * kSparseBlock / kParts);
      const int64_t from = count * part / kParts, to = count * (part + 1) / kParts;
      float* sum = total + from * width;
      sparse.combine_rows(kept.columns(block, first + from, to - from), {sum, width}, {columns, width}, {sum, width},
                          whole_vectors);
    }
  }
}

// ReLU makes half of the gradient zero, with dropout of a half three quarters: the product leaves them out. (A
// zero is not multiplied, so an infinite input does not become NaN there.)
void sparse_backward(const float* g, const float* out, float scale, const float* a, int64_t m, int64_t n, int64_t k,
                     float* dw, float* db, int num_threads) {
  const int64_t width = kernels().sparse.strip_columns, num_strips = (k + width - 1) / width;
  const KeptGradient kept(g, out, scale, m, n, num_threads);
  add_up(kept.sums(), kept.num_blocks(), n, n, db);
  constexpr int64_t kFewestRows = 32;  // of dw for one thread: each copies the strip of `a` for itself
  const int64_t shares = std::clamp<int64_t>(2 * num_threads / num_strips, 1, (n + kFewestRows - 1) / kFewestRows);
  for_rows(num_strips * shares, 1, num_threads, [&](int64_t begin, int64_t end) {
    const Aligned<float> columns(kSparseBlock * width), total((n / shares + 1) * width);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t column = task / shares * width, share = task % shares;
      const int64_t first = share * n / shares, count = (share + 1) * n / shares - first;
      const Strip strip{a, m, k, column, std::min(width, k - column)};
      add_strip(kept, strip, first, count, columns.data.get(), total.data.get());
      for (int64_t row = 0; row < count; ++row)
        std::copy_n(total.data.get() + row * width, strip.width, dw + (first + row) * k + column);
    }
  });
}

}  // namespace

void linear_backward(const float* grad_out, const float* out, float scale, const float* a, int64_t m, int64_t n,
                     int64_t k, float* dw, float* db, int num_threads) {
  if (out) sparse_backward(grad_out, out, scale, a, m, n, k, dw, db, num_threads);
  else dense_backward(grad_out, a, m, n, k, dw, db, num_threads);
}

void finish(const uint16_t* product, int64_t m, int64_t n, const Epilogue& epilogue, float* out, int num_threads) {
  for_rows(m, kRowsPerChunk, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      kernels().rows.finish(out + row * n, product + row * n, row, epilogue, n);
  });
}

void narrow_gradient(const float* grad_out, const float* out, float scale, int64_t m, int64_t n, uint16_t* narrow,
                     float* db, int num_threads) {
  const int64_t num_blocks = (m + kBlock - 1) / kBlock;
  const Aligned<float> sums(num_blocks * n);
  for_rows(m, kBlock, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* sum = sums.data.get() + row / kBlock * n;
      if (row % kBlock == 0) std::fill_n(sum, n, 0.0f);
      kernels().rows.narrow_gradient(narrow + row * n, sum, grad_out + row * n, out ? out + row * n : nullptr, scale,
                                     n);
    }
  });
  add_up(sums.data.get(), num_blocks, n, n, db);
}

void relu_dropout(const float* in, int64_t m, int64_t n, const uint64_t* row_keys, uint32_t threshold, float scale,
                  float* out, int num_threads) {
  for_rows(m, kRowsPerChunk, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      kernels().rows.relu_dropout(out + row * n, in + row * n, row_keys[row], threshold, scale, n);
  });
}

void relu_dropout_backward(const float* grad_out, const float* out, int64_t count, float scale, float* grad_in,
                           int num_threads) {
  for_rows(count, 1 << 16, num_threads, [&](int64_t begin, int64_t end) {
    kernels().rows.relu_dropout_backward(grad_in + begin, grad_out + begin, out + begin, scale, end - begin);
  });
}

}  // namespace graphmill
