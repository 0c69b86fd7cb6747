#include "dcgru.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "pool.h"

namespace graphmill {

namespace {

constexpr int64_t kRowsPerBlock = 168;  // rows that are processed together, if samples are smaller than that
constexpr int64_t kMaxGroups = 16;      // sums of weight gradients that are kept apart, so that threads need not wait

Walks::Matrix part_of(const SparseRows& stacked, int64_t first, int64_t num_rows) {
  Walks::Matrix out;
  const int64_t begin = stacked.indptr[first], end = stacked.indptr[first + num_rows];
  for (int64_t row = 0; row <= num_rows; ++row) out.indptr.push_back(stacked.indptr[first + row] - begin);
  out.indices.assign(stacked.indices + begin, stacked.indices + end);
  out.values.assign(stacked.values + begin, stacked.values + end);
  return out;
}

Walks::Matrix transpose(const Walks::Matrix& matrix) {
  const auto num_rows = static_cast<int64_t>(matrix.indptr.size()) - 1;
  Walks::Matrix out;
  out.indptr.assign(num_rows + 1, 0);
  for (const int32_t column : matrix.indices) ++out.indptr[column + 1];
  for (int64_t row = 0; row < num_rows; ++row) out.indptr[row + 1] += out.indptr[row];
  std::vector<int64_t> next(out.indptr.begin(), out.indptr.end() - 1);
  out.indices.resize(matrix.indices.size());
  out.values.resize(matrix.values.size());
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t e = matrix.indptr[row]; e < matrix.indptr[row + 1]; ++e) {
      const int64_t to = next[matrix.indices[e]]++;
      out.indices[to] = static_cast<int32_t>(row);
      out.values[to] = matrix.values[e];
    }
  }
  return out;
}

int64_t packed_size(int64_t n, int64_t k) {
  const int64_t columns = kernels().products.tile_columns;
  return (n + columns - 1) / columns * columns * k;
}

// Rows [0, k) of w, columns [0, n), as rows [offset, offset + k) of a product's right side of k_total rows.
void pack_rows(float* packed, const float* w, int64_t stride, int64_t n, int64_t k, int64_t offset, int64_t k_total) {
  const int64_t columns = kernels().products.tile_columns;
  for (int64_t first = 0; first < n; first += columns, packed += k_total * columns) {
    const int64_t width = std::min(columns, n - first);
    for (int64_t i = 0; i < k; ++i) {
      float* to = packed + (offset + i) * columns;
      std::memcpy(to, w + i * stride + first, width * 4);
      std::fill(to + width, to + columns, 0.0f);
    }
  }
}

// Memory of one thread, kept from call to call.
class Scratch {
 public:
  explicit Scratch(int64_t count) {
    thread_local std::unique_ptr<AlignedArray> memory;
    thread_local int64_t capacity = 0;
    if (count > capacity) {
      memory.reset();
      memory = std::make_unique<AlignedArray>(count);
      capacity = count;
    }
    next_ = memory->get();
  }
  float* take(int64_t count) {  // aligned to 64 bytes
    float* taken = next_;
    next_ += rounded(count);
    return taken;
  }
  static int64_t rounded(int64_t count) { return (count + 15) / 16 * 16; }

 private:
  float* next_;
};

// What a block of samples needs to know; A is [rows, stride] = [slots of h | slots of x | slots of r ∘ h].
struct Block {
  const Walks& walks;
  const DcgruWeights& weights;
  const DcgruState& state;
  int64_t first_sample, num_samples;

  int64_t rows() const { return num_samples * walks.num_nodes; }
  int64_t first_row() const { return first_sample * walks.num_nodes; }
  int64_t h_columns() const { return weights.num_slots * weights.units; }
  int64_t x_columns() const { return weights.num_slots * weights.channels; }
  int64_t stride() const { return 2 * h_columns() + x_columns(); }
  const float* h() const { return state.h + first_row() * weights.units; }
  float* gates() const { return state.gates + first_row() * 2 * weights.units; }
  float* candidate() const { return state.candidate + first_row() * weights.units; }

  // Slot 0 is written; write the others.
  void diffuse(float* slots, int64_t width) const {
    for (int64_t sample = 0; sample < num_samples; ++sample, slots += walks.num_nodes * stride()) {
      int64_t slot = 1;
      for (const auto& walk : walks.forward) {
        for (int64_t step = 0; step < walks.num_steps; ++step, ++slot) {
          const float* from = slots + (step == 0 ? 0 : slot - 1) * width;
          kernels().sparse.combine_rows(walk.rows(), {slots + slot * width, stride()}, {from, stride()}, {nullptr, 0},
                                        width);
        }
      }
    }
  }

  void fill_slots(float* slots, const float* from, int64_t width) const {
    for (int64_t row = 0; row < rows(); ++row) std::memcpy(slots + row * stride(), from + row * width, width * 4);
    diffuse(slots, width);
  }

  void fill_h_and_x(float* a) const {
    fill_slots(a, h(), weights.units);
    fill_slots(a + h_columns(), state.x + first_row() * weights.channels, weights.channels);
  }

  void fill_reset_h(float* a, bool activate) const {
    float* slots = a + h_columns() + x_columns();
    kernels().recurrent.reset(gates(), h(), {slots, stride()}, rows(), weights.units, activate);
    diffuse(slots, weights.units);
  }

  // out (+)= Σ_s S_sᵀ grad of slot s, Horner's way; grads [rows, num_slots * width] are overwritten.
  void gather_slots(float* grads, int64_t width, float* out, bool add) const {
    const int64_t row_stride = weights.num_slots * width;
    for (int64_t sample = 0; sample < num_samples;
         ++sample, grads += walks.num_nodes * row_stride, out += walks.num_nodes * width) {
      for (int64_t row = 0; row < walks.num_nodes; ++row) {
        float* to = out + row * width;
        if (add) kernels().rows.add_scaled(to, grads + row * row_stride, 1.0f, width);
        else std::memcpy(to, grads + row * row_stride, width * 4);
      }
      int64_t slot = 1;
      for (const auto& walk : walks.transposed) {
        for (int64_t last = slot + walks.num_steps - 1; last > slot; --last) {
          float* nearer = grads + (last - 1) * width;
          kernels().sparse.combine_rows(walk.rows(), {nearer, row_stride}, {grads + last * width, row_stride},
                                        {nearer, row_stride}, width);
        }
        kernels().sparse.combine_rows(walk.rows(), {out, width}, {grads + slot * width, row_stride}, {out, width},
                                      width);
        slot += walks.num_steps;
      }
    }
  }
};

constexpr Epilogue kPlain{nullptr, nullptr, 0, 1.0f, false};

int64_t samples_per_block(int64_t num_nodes) { return std::max<int64_t>(1, kRowsPerBlock / num_nodes); }

// One group's sums of weight gradients.
struct Sums {
  float *gate_weight, *gate_bias, *candidate_weight, *candidate_bias;
};

// dw [n, k] += gᵀ · a over the block's rows; db += the sums of g's rows.
void add_product(const float* g, int64_t n, const float* a, int64_t a_stride, int64_t k, int64_t rows, float* dw,
                 float* db, float* packed, float* line, float* columns) {
  const ProductKernels& products = kernels().products;
  products.pack_gradients(packed, g, 0, rows, n, db, line);
  for (int64_t column = 0; column < k; column += products.tile_columns)
    products.add_outer(dw, packed, a, a_stride, 0, rows, n, k, column, columns);
}

// Memory for the backward of one block.
struct BackwardMemory {
  explicit BackwardMemory(const Block& block) : sizes(sizes_of(block)), scratch(total(sizes)) {
    float** const arrays[] = {&a, &before, &gates, &candidate, &grad_reset_h, &grad_slots, &packed, &line, &columns};
    // NOLINTNEXTLINE(clang-analyzer-optin.cplusplus.UninitializedObject): through `arrays`
    for (size_t i = 0; i < sizes.size(); ++i) *arrays[i] = scratch.take(sizes[i]);
  }

  using Sizes = std::array<int64_t, 9>;
  Sizes sizes;
  Scratch scratch;
  float* a;                        // [rows, stride], as in Block
  float* before;                   // [rows, 3 units]: gradients of [r | u | candidate] before their activations
  float* gates;                    // [rows, 2 units]: its columns of r and u
  float* candidate;                // [rows, units]: its columns of the candidate
  float* grad_reset_h;             // [rows, units]
  float* grad_slots;               // [rows, slots * the wider of units and channels]
  float *packed, *line, *columns;  // scratch of add_product

 private:
  static Sizes sizes_of(const Block& block) {
    const ProductKernels& products = kernels().products;
    const DcgruWeights& w = block.weights;
    const int64_t rows = block.rows(), units = w.units;
    const int64_t packed_columns = (2 * units + products.tile_rows - 1) / products.tile_rows * products.tile_rows;
    return {rows * block.stride(),
            rows * 3 * units,
            rows * 2 * units,
            rows * units,
            rows * units,
            rows * w.num_slots * std::max(units, w.channels),
            rows * packed_columns,
            2 * units + products.tile_rows,
            rows * products.tile_columns};
  }
  static int64_t total(const Sizes& sizes) {
    int64_t sum = 0;
    for (const int64_t size : sizes) sum += Scratch::rounded(size);
    return sum;
  }
};

// Columns [first, first + width) of rows [num_rows, stride].
void copy_columns(float* out, const float* rows, int64_t num_rows, int64_t stride, int64_t first, int64_t width) {
  for (int64_t row = 0; row < num_rows; ++row) std::memcpy(out + row * width, rows + row * stride + first, width * 4);
}

void backward_block(const Block& block, const DcgruGrads& grads, const Sums& sums) {
  const ProductKernels& products = kernels().products;
  const RecurrentKernels& recurrent = kernels().recurrent;
  const DcgruWeights& w = block.weights;
  const int64_t rows = block.rows(), units = w.units, slots = w.num_slots;
  const BackwardMemory m(block);
  block.fill_h_and_x(m.a);
  block.fill_reset_h(m.a, false);
  const float* new_h = grads.new_h + block.first_row() * units;
  float* grad_h = grads.h + block.first_row() * units;
  recurrent.update_backward(new_h, block.gates(), block.candidate(), block.h(), m.before, grad_h, rows, units);
  copy_columns(m.candidate, m.before, rows, 3 * units, 2 * units, units);

  products.multiply(m.grad_slots, m.candidate, units, w.of_reset_h.get(), rows, slots * units, units, 0, kPlain);
  block.gather_slots(m.grad_slots, units, m.grad_reset_h, false);
  recurrent.reset_backward(m.grad_reset_h, block.gates(), block.h(), m.before, grad_h, rows, units);
  copy_columns(m.gates, m.before, rows, 3 * units, 0, 2 * units);

  products.multiply(m.grad_slots, m.gates, 2 * units, w.of_h.get(), rows, slots * units, 2 * units, 0, kPlain);
  block.gather_slots(m.grad_slots, units, grad_h, true);
  if (grads.x) {
    products.multiply(m.grad_slots, m.before, 3 * units, w.of_x.get(), rows, slots * w.channels, 3 * units, 0, kPlain);
    block.gather_slots(m.grad_slots, w.channels, grads.x + block.first_row() * w.channels, false);
  }
  const int64_t stride = block.stride(), k = block.h_columns() + block.x_columns();
  add_product(m.gates, 2 * units, m.a, stride, k, rows, sums.gate_weight, sums.gate_bias, m.packed, m.line, m.columns);
  add_product(m.candidate, units, m.a + block.h_columns(), stride, k, rows, sums.candidate_weight, sums.candidate_bias,
              m.packed, m.line, m.columns);
}

}  // namespace

Walks::Walks(const SparseRows& stacked, int64_t nodes, int64_t steps) : num_nodes(nodes), num_steps(steps) {
  for (int64_t first = 0; first < stacked.num_rows; first += num_nodes) {
    forward.push_back(part_of(stacked, first, num_nodes));
    transposed.push_back(transpose(forward.back()));
  }
}

DcgruWeights::DcgruWeights(const float* gate_weight, const float* gate_bias_, const float* candidate_weight,
                           const float* candidate_bias_, int64_t slots, int64_t channels_, int64_t units_)
    : num_slots(slots),
      channels(channels_),
      units(units_),
      gates(packed_size(2 * units_, slots * (units_ + channels_))),
      candidate(packed_size(units_, slots * (units_ + channels_))),
      of_h(packed_size(slots * units_, 2 * units_)),
      of_x(packed_size(slots * channels_, 3 * units_)),
      of_reset_h(packed_size(slots * units_, units_)),
      gate_bias(gate_bias_, gate_bias_ + 2 * units_),
      candidate_bias(candidate_bias_, candidate_bias_ + units_) {
  const int64_t h_columns = slots * units, x_columns = slots * channels, k = h_columns + x_columns;
  kernels().products.pack_weights(gates.get(), gate_weight, 2 * units, k);
  kernels().products.pack_weights(candidate.get(), candidate_weight, units, k);
  pack_rows(of_h.get(), gate_weight, k, h_columns, 2 * units, 0, 2 * units);
  pack_rows(of_x.get(), gate_weight + h_columns, k, x_columns, 2 * units, 0, 3 * units);
  pack_rows(of_x.get(), candidate_weight, k, x_columns, units, 2 * units, 3 * units);
  pack_rows(of_reset_h.get(), candidate_weight + x_columns, k, h_columns, units, 0, units);
}

void dcgru_forward(const Walks& walks, const DcgruWeights& w, const DcgruState& state, float* new_h, int num_threads) {
  const ProductKernels& products = kernels().products;
  const RecurrentKernels& recurrent = kernels().recurrent;
  const int64_t per_block = samples_per_block(walks.num_nodes),
                num_blocks = (state.num_samples + per_block - 1) / per_block;
  const Epilogue gate_epilogue{w.gate_bias.data(), nullptr, 0, 1.0f, false};
  const Epilogue candidate_epilogue{w.candidate_bias.data(), nullptr, 0, 1.0f, false};
  ThreadPool::instance().parallel_for(num_blocks, 1, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t number = begin; number < end; ++number) {
      const int64_t first = number * per_block;
      const Block block{walks, w, state, first, std::min(per_block, state.num_samples - first)};
      const int64_t rows = block.rows(), k = block.h_columns() + block.x_columns();
      float* a = Scratch(rows * block.stride()).take(rows * block.stride());
      block.fill_h_and_x(a);
      products.multiply(block.gates(), a, block.stride(), w.gates.get(), rows, 2 * w.units, k, 0, gate_epilogue);
      block.fill_reset_h(a, true);
      products.multiply(block.candidate(), a + block.h_columns(), block.stride(), w.candidate.get(), rows, w.units, k,
                        0, candidate_epilogue);
      recurrent.update(block.candidate(), block.gates(), block.h(), new_h + block.first_row() * w.units, rows, w.units);
    }
  });
}

void dcgru_backward(const Walks& walks, const DcgruWeights& w, const DcgruState& state, const DcgruGrads& grads,
                    int num_threads) {
  const int64_t per_block = samples_per_block(walks.num_nodes),
                num_blocks = (state.num_samples + per_block - 1) / per_block;
  const int64_t num_groups = std::min(kMaxGroups, num_blocks);
  const int64_t k = w.num_slots * (w.units + w.channels), size = 3 * w.units * (k + 1);
  const AlignedArray memory(num_groups * size);
  ThreadPool::instance().parallel_for(num_groups, 1, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      float* sums = memory.get() + group * size;
      std::fill_n(sums, size, 0.0f);
      const Sums parts{sums, sums + 3 * w.units * k, sums + 2 * w.units * k, sums + 3 * w.units * k + 2 * w.units};
      for (int64_t number = num_blocks * group / num_groups; number < num_blocks * (group + 1) / num_groups; ++number) {
        const int64_t first = number * per_block;
        backward_block({walks, w, state, first, std::min(per_block, state.num_samples - first)}, grads, parts);
      }
    }
  });
  for (int64_t group = 0; group < num_groups; ++group) {
    const float* sums = memory.get() + group * size;
    kernels().rows.add_scaled(grads.gate_weight, sums, 1.0f, 2 * w.units * k);
    kernels().rows.add_scaled(grads.candidate_weight, sums + 2 * w.units * k, 1.0f, w.units * k);
    kernels().rows.add_scaled(grads.gate_bias, sums + 3 * w.units * k, 1.0f, 2 * w.units);
    kernels().rows.add_scaled(grads.candidate_bias, sums + 3 * w.units * k + 2 * w.units, 1.0f, w.units);
  }
}

}  // namespace graphmill
