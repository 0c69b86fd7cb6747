// Rows of features: their number formats, sums, heads, and dropout.
#include "rows.h"

#include <cstdint>
#include <cstring>

#include "../shared/numbers.h"
#include "dropout.h"
#include "vectors.h"

namespace graphmill {
namespace {

// ---- number formats -------------------------------------------------------------------------------------------------

inline uint16_t to_bfloat16(float x) {  // round to nearest, ties to even; NaN stays NaN
  const uint32_t b = bits_of(x);
  if ((b & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((b >> 16) | 0x40);
  return static_cast<uint16_t>((b + 0x7fff + ((b >> 16) & 1)) >> 16);
}

inline float from_float16(uint16_t h) {
#if defined(__F16C__)
  return _cvtsh_ss(h);
#else
  return from_float16_bits(h);
#endif
}

typedef uint16_t VH __attribute__((vector_size(kBytes / 2)));
typedef uint16_t VHU __attribute__((vector_size(kBytes / 2), aligned(2), may_alias));

inline VH to_bfloat16(V x) {
  const VI b = reinterpret_cast<VI>(x);
  const VI rounded = (b + 0x7fff + ((b >> 16) & 1)) >> 16;
  const VI kept = (b & 0x7fffffff) > 0x7f800000 ? (b >> 16) | 0x40 : rounded;
#if defined(__AVX512F__)
  return reinterpret_cast<VH>(_mm512_maskz_cvtepi32_epi16(0xffff, reinterpret_cast<__m512i>(kept)));
#else
  return __builtin_convertvector(kept, VH);
#endif
}

inline void store(uint16_t* p, VH v) { *reinterpret_cast<VHU*>(p) = v; }

struct Float32 {
  using Stored = float;
  static V vector(const float* p) { return load(p); }
  static float scalar(float x) { return x; }
};

struct Bfloat16 {
  using Stored = uint16_t;
  static V vector(const uint16_t* p) {
#if defined(__AVX512F__)  // by name: of a conversion of vectors GCC 12 makes six instructions
    const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const VI wide = reinterpret_cast<VI>(_mm512_maskz_cvtepu16_epi32(0xffff, narrow));
#else
    const VI wide = __builtin_convertvector(static_cast<VH>(*reinterpret_cast<const VHU*>(p)), VI);
#endif
    return reinterpret_cast<V>(wide << 16);
  }
  static float scalar(uint16_t x) { return from_bfloat16(x); }
};

struct Float16 {
  using Stored = uint16_t;
  static V vector(const uint16_t* p) {
#if defined(__AVX512F__)
    // Masked with all lanes on: the same instruction, and GCC 12 warns that the plain form reads an undefined vector.
    return reinterpret_cast<V>(_mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
#elif defined(__F16C__)
    return reinterpret_cast<V>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#else
    V out;
    for (int i = 0; i < kLanes; ++i) out[i] = from_float16(p[i]);
    return out;
#endif
  }
  static float scalar(uint16_t x) { return from_float16(x); }
};

// ---- rows -----------------------------------------------------------------------------------------------------------

template <class T>
inline void prefetch_row(const T* row, int64_t n) {
  for (int64_t byte = 0; byte < n * static_cast<int64_t>(sizeof(T)); byte += 64)
    __builtin_prefetch(reinterpret_cast<const char*>(row) + byte);
}

template <class Format>
void add_rows_of(float* sum, const void* rows, int64_t id_step, const int64_t* ids, int64_t num_ids, int64_t n) {
  using Stored = Format::Stored;
  const Stored* base = static_cast<const Stored*>(rows);
  for (int64_t i = 0; i < num_ids; i += 2) {  // two at a time, in the order of edges: half the traffic on `sum`
    const bool pair = i + 1 < num_ids;
    const Stored* first = base + ids[i] * id_step;
    const Stored* second = base + ids[pair ? i + 1 : i] * id_step;
    if (i + 2 < num_ids) prefetch_row(base + ids[i + 2] * id_step, n);
    if (i + 3 < num_ids) prefetch_row(base + ids[i + 3] * id_step, n);
    int64_t f = 0;
    if (pair) {
      for (; f + kLanes <= n; f += kLanes)
        store(sum + f, load(sum + f) + Format::vector(first + f) + Format::vector(second + f));
      for (; f < n; ++f) sum[f] = sum[f] + Format::scalar(first[f]) + Format::scalar(second[f]);
    } else {
      for (; f + kLanes <= n; f += kLanes) store(sum + f, load(sum + f) + Format::vector(first + f));
      for (; f < n; ++f) sum[f] += Format::scalar(first[f]);
    }
  }
}

void add_rows(float* sum, const void* rows, RowType type, int64_t id_step, const int64_t* ids, int64_t num_ids,
              int64_t n) {
  switch (type) {
    case RowType::kFloat32: return add_rows_of<Float32>(sum, rows, id_step, ids, num_ids, n);
    case RowType::kFloat16: return add_rows_of<Float16>(sum, rows, id_step, ids, num_ids, n);
    case RowType::kBfloat16: return add_rows_of<Bfloat16>(sum, rows, id_step, ids, num_ids, n);
  }
}

void store_row(void* out, RowType type, const float* in, float factor, int64_t n) {
  if (type == RowType::kFloat32) {
    float* to = static_cast<float*>(out);
    int64_t f = 0;
    for (; f + kLanes <= n; f += kLanes) store(to + f, load(in + f) * factor);
    for (; f < n; ++f) to[f] = in[f] * factor;
  } else {
    uint16_t* to = static_cast<uint16_t*>(out);
    int64_t f = 0;
    for (; f + kLanes <= n; f += kLanes) store(to + f, to_bfloat16(load(in + f) * factor));
    for (; f < n; ++f) to[f] = to_bfloat16(in[f] * factor);
  }
}

template <class Format>
void widen_row(float* out, const void* row, int64_t n) {
  const auto* from = static_cast<const Format::Stored*>(row);
  int64_t f = 0;
  for (; f + kLanes <= n; f += kLanes) store(out + f, Format::vector(from + f));
  for (; f < n; ++f) out[f] = Format::scalar(from[f]);
}

template <class Format>
void narrow_row(uint16_t* out, const void* row, int64_t n) {
  const auto* from = static_cast<const Format::Stored*>(row);
  int64_t f = 0;
  for (; f + kLanes <= n; f += kLanes) store(out + f, to_bfloat16(Format::vector(from + f)));
  for (; f < n; ++f) out[f] = to_bfloat16(Format::scalar(from[f]));
}

void convert_row(void* out, RowType out_type, const void* row, RowType type, int64_t n) {
  if (out_type == type) {
    memcpy(out, row, n * (type == RowType::kFloat32 ? 4 : 2));
  } else if (out_type == RowType::kFloat32) {
    type == RowType::kFloat16 ? widen_row<Float16>(static_cast<float*>(out), row, n)
                              : widen_row<Bfloat16>(static_cast<float*>(out), row, n);
  } else {
    type == RowType::kFloat32 ? narrow_row<Float32>(static_cast<uint16_t*>(out), row, n)
                              : narrow_row<Float16>(static_cast<uint16_t*>(out), row, n);
  }
}

void dot_heads(float* out, const float* a, const float* b, int64_t heads, int64_t channels) {
  for (int64_t head = 0; head < heads; ++head, a += channels, b += channels) {
    V sums{};
    int64_t f = 0;
    for (; f + kLanes <= channels; f += kLanes) sums += load(a + f) * load(b + f);
    float sum = 0.0f;
    for (int lane = 0; lane < kLanes; ++lane) sum += sums[lane];
    for (; f < channels; ++f) sum += a[f] * b[f];
    out[head] = sum;
  }
}

void add_heads(float* sum, const float* row, const float* factors, int64_t heads, int64_t channels) {
  for (int64_t head = 0; head < heads; ++head)
    add_scaled(sum + head * channels, row + head * channels, factors[head], channels);
}

// ---- dropout --------------------------------------------------------------------------------------------------------

void relu_dropout(float* out, const float* in, uint64_t key, uint32_t threshold, float scale, int64_t n) {
  for (int64_t f = 0; f < n; f += kLanes) {
    const int64_t width = n - f < kLanes ? n - f : kLanes;
    float block[kLanes] = {};
    if (width == kLanes) {
      store(out + f, keep(positive(load(in + f)), column_numbers(f), key, threshold, scale));
    } else {
      memcpy(block, in + f, width * 4);
      store(block, keep(positive(load(block)), column_numbers(f), key, threshold, scale));
      memcpy(out + f, block, width * 4);
    }
  }
}

void relu_dropout_backward(float* grad_in, const float* grad_out, const float* out, float scale, int64_t count) {
  const V zero{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const V kept = load(out + i);
    store(grad_in + i, kept <= zero ? zero : load(grad_out + i) * scale);
  }
  for (; i < count; ++i) grad_in[i] = out[i] <= 0 ? 0.0f : grad_out[i] * scale;
}

// ---- products in bfloat16 -------------------------------------------------------------------------------------------

void finish(float* out, const uint16_t* product, int64_t row, const Epilogue& epilogue, int64_t n) {
  for (int64_t f = 0; f < n; f += kLanes) {
    const int64_t width = n - f < kLanes ? n - f : kLanes;
    uint16_t block[kLanes] = {};
    if (width < kLanes) memcpy(block, product + f, width * 2);
    V x = Bfloat16::vector(width < kLanes ? block : product + f);
    if (epilogue.bias) x += load_some(epilogue.bias + f, width);
    if (epilogue.relu) x = positive(x);
    if (epilogue.row_keys) x = keep(x, column_numbers(f), epilogue.row_keys[row], epilogue.threshold, epilogue.scale);
    store_some(out + f, x, width);
  }
}

void narrow_gradient(uint16_t* out, float* sum, const float* grad, const float* activated, float scale, int64_t n) {
  const V zero{};
  for (int64_t f = 0; f < n; f += kLanes) {
    const int64_t width = n - f < kLanes ? n - f : kLanes;
    V x = load_some(grad + f, width);
    if (activated) x = load_some(activated + f, width) <= zero ? zero : x * scale;
    store_some(sum + f, load_some(sum + f, width) + x, width);
    const VH narrow = to_bfloat16(x);
    if (width == kLanes) store(out + f, narrow);
    else memcpy(out + f, &narrow, width * 2);
  }
}

}  // namespace

namespace GRAPHMILL_ISA {

extern const RowKernels rows;
const RowKernels rows = {
    add_rows,  store_row,    convert_row,           add_scaled, dot_heads,
    add_heads, relu_dropout, relu_dropout_backward, finish,     narrow_gradient,
};

}  // namespace GRAPHMILL_ISA
}  // namespace graphmill
