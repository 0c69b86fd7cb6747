#include "ranges.h"

#include <cstring>

#include "pool.h"

namespace graphmill {

namespace {

constexpr int64_t kChunk = 64;     // ranges that a thread claims at once
constexpr int64_t kRowsAhead = 2;  // rows that are fetched ahead of their use

template <class Body>
void for_each(const Ranges& ranges, int num_threads, const Body& body) {
  ThreadPool::instance().parallel_for(ranges.num_ranges, kChunk, num_threads, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      body(i, ranges.begins[i], ranges.offsets[i], ranges.offsets[i + 1] - ranges.offsets[i]);
  });
}

}  // namespace

bool ranges_fit(const Ranges& ranges, int64_t num_rows, int64_t num_out) {
  if (ranges.offsets[0] != 0 || ranges.offsets[ranges.num_ranges] != num_out) return false;
  for (int64_t i = 0; i < ranges.num_ranges; ++i) {
    const int64_t begin = ranges.begins[i], count = ranges.offsets[i + 1] - ranges.offsets[i];
    if (begin < 0 || count < 0 || begin > num_rows - count) return false;
  }
  return true;
}

void copy_ranges(const void* table, int64_t row_bytes, const Ranges& ranges, void* out, int num_threads) {
  const auto* from = static_cast<const char*>(table);
  auto* to = static_cast<char*>(out);
  for_each(ranges, num_threads, [&](int64_t, int64_t begin, int64_t offset, int64_t count) {
    if (count) std::memcpy(to + offset * row_bytes, from + begin * row_bytes, static_cast<size_t>(count * row_bytes));
  });
}

void copy_rows(const void* table, int64_t row_bytes, const int64_t* rows, const int64_t* places, int64_t count,
               void* out, int num_threads) {
  const auto* from = static_cast<const char*>(table);
  auto* to = static_cast<char*>(out);
  ThreadPool::instance().parallel_for(count, kChunk, num_threads, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      if (i + kRowsAhead < last)
        for (int64_t byte = 0; byte < row_bytes; byte += 64)
          __builtin_prefetch(from + rows[i + kRowsAhead] * row_bytes + byte);
      std::memcpy(to + places[i] * row_bytes, from + rows[i] * row_bytes, static_cast<size_t>(row_bytes));
    }
  });
}

template <class Out>
void copy_ranges_shifted(const int32_t* table, const Ranges& ranges, const int64_t* shifts, Out* out, int num_threads) {
  for_each(ranges, num_threads, [&](int64_t i, int64_t begin, int64_t offset, int64_t count) {
    const auto shift = static_cast<Out>(shifts[i]);
    for (int64_t k = 0; k < count; ++k) out[offset + k] = static_cast<Out>(table[begin + k]) + shift;
  });
}

template void copy_ranges_shifted(const int32_t*, const Ranges&, const int64_t*, int32_t*, int);
template void copy_ranges_shifted(const int32_t*, const Ranges&, const int64_t*, int64_t*, int);

}  // namespace graphmill
