#include "norms.h"

#include <cmath>
#include <vector>

#include "buffer.h"
#include "kernels.h"
#include "pool.h"

namespace graphmill {

namespace {

constexpr int64_t kBlock = 256;  // rows whose sums are float32: they stay in the second cache for both of its passes

// body(first row, number of rows, block) for each block; blocks are the same for any number of threads.
template <class Body>
void for_blocks(int64_t num_rows, int num_threads, const Body& body) {
  ThreadPool::instance().parallel_for(num_rows, kBlock, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row += kBlock)
      body(row, end - row < kBlock ? end - row : kBlock, row / kBlock);
  });
}

}  // namespace

void norm_relu(const NormedRows& rows, const float* weight, const float* bias, float eps, float* mean, float* variance,
               float* out, int num_threads) {
  const auto [x, num_rows, n] = rows;
  const int64_t num_blocks = (num_rows + kBlock - 1) / kBlock;
  const Aligned<float> means(num_blocks * n), squares(num_blocks * n), scale(n), shift(n);
  for_blocks(num_rows, num_threads, [&, x = x, n = n](int64_t row, int64_t count, int64_t block) {
    kernels().norms.moments(means.data.get() + block * n, squares.data.get() + block * n, x + row * n, count, n);
  });
  for (int64_t f = 0; f < n; ++f) {  // blocks are joined in their order, as by Chan, Golub and LeVeque 1979
    double joined_mean = 0, joined_squares = 0, joined_rows = 0;
    for (int64_t block = 0; block < num_blocks; ++block) {
      const int64_t left = num_rows - block * kBlock;
      const auto count = static_cast<double>(left < kBlock ? left : kBlock);
      const double distance = means.data.get()[block * n + f] - joined_mean, total = joined_rows + count;
      joined_mean += distance * count / total;
      joined_squares += squares.data.get()[block * n + f] + distance * distance * joined_rows * count / total;
      joined_rows = total;
    }
    const double of_rows = joined_squares / joined_rows, factor = weight[f] / std::sqrt(of_rows + eps);
    mean[f] = static_cast<float>(joined_mean);
    variance[f] = static_cast<float>(of_rows);
    scale.data.get()[f] = static_cast<float>(factor);
    shift.data.get()[f] = static_cast<float>(bias[f] - joined_mean * factor);
  }
  for_blocks(num_rows, num_threads, [&, x = x, n = n](int64_t row, int64_t count, int64_t) {
    kernels().norms.scale_relu(out + row * n, x + row * n, scale.data.get(), shift.data.get(), count, n);
  });
}

void norm_relu_backward(const NormedRows& rows, const float* weight, float eps, const float* mean,
                        const float* variance, const float* out, const float* grad_out, float* grad_x,
                        float* grad_weight, float* grad_bias, int num_threads) {
  const auto [x, num_rows, n] = rows;
  const int64_t num_blocks = (num_rows + kBlock - 1) / kBlock;
  const Aligned<float> sums(num_blocks * n), products(num_blocks * n), scale(n), slope(n), shift(n);
  for_blocks(num_rows, num_threads, [&, x = x, n = n](int64_t row, int64_t count, int64_t block) {
    kernels().norms.gradient_sums(sums.data.get() + block * n, products.data.get() + block * n, grad_out + row * n,
                                  out + row * n, x + row * n, mean, count, n);
  });
  for (int64_t f = 0; f < n; ++f) {
    double sum = 0, product = 0;
    for (int64_t block = 0; block < num_blocks; ++block) {
      sum += sums.data.get()[block * n + f];
      product += products.data.get()[block * n + f];
    }
    const double inverse = 1 / std::sqrt(static_cast<double>(variance[f]) + eps), factor = weight[f] * inverse;
    const auto count = static_cast<double>(num_rows);
    grad_bias[f] = static_cast<float>(sum);
    grad_weight[f] = static_cast<float>(product * inverse);
    scale.data.get()[f] = static_cast<float>(factor);
    slope.data.get()[f] = static_cast<float>(-factor * inverse * inverse * product / count);
    shift.data.get()[f] = static_cast<float>(-factor * sum / count);
  }
  for_blocks(num_rows, num_threads, [&, x = x, n = n](int64_t row, int64_t count, int64_t) {
    kernels().norms.gradient(grad_x + row * n, grad_out + row * n, out + row * n, x + row * n, mean, scale.data.get(),
                             slope.data.get(), shift.data.get(), count, n);
  });
}

}  // namespace graphmill
