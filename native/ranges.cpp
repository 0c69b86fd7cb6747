#include "ranges.h"

#include <algorithm>
#include <atomic>
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

constexpr int64_t kBytesTaken = 1 << 16;  // that a thread claims at once
constexpr int64_t kBytesAhead = 1 << 11;  // on their way while a row is copied
constexpr int64_t kMostRowsAhead = 16;

bool are_rows(const RowsTaken& of, int64_t first, int64_t last) {
  uint64_t highest = 0;
  for (int64_t i = first; i < last; ++i) highest = std::max(highest, static_cast<uint64_t>(of.ids[i]));
  return highest < static_cast<uint64_t>(of.num_rows);
}

// Rows of one number, at any address. The processor has more of them on their way by itself than prefetches would add.
template <class Number>
void take_numbers(const RowsTaken& of, int64_t first, int64_t last) {
  const char* from = of.table;
  char* __restrict to = of.out;
  const int64_t* __restrict ids = of.ids;
  constexpr auto size = static_cast<int64_t>(sizeof(Number));
  for (int64_t i = first; i < last; ++i) std::memcpy(to + i * size, from + ids[i] * size, sizeof(Number));
}

void take_bytes(const RowsTaken& of, int64_t first, int64_t last) {
  const int64_t ahead = std::clamp<int64_t>(kBytesAhead / of.row_bytes, 2, kMostRowsAhead);
  for (int64_t i = first; i < last; ++i) {
    if (i + ahead < last)
      for (int64_t byte = 0; byte < of.row_bytes; byte += 64)
        __builtin_prefetch(of.table + of.ids[i + ahead] * of.row_bytes + byte);
    std::memcpy(of.out + i * of.row_bytes, of.table + of.ids[i] * of.row_bytes, static_cast<size_t>(of.row_bytes));
  }
}

// Rows [first, last) of one table.
void take(const RowsTaken& of, int64_t first, int64_t last) {
  switch (of.row_bytes) {
    case 1: return take_numbers<uint8_t>(of, first, last);
    case 2: return take_numbers<uint16_t>(of, first, last);
    case 4: return take_numbers<uint32_t>(of, first, last);
    case 8: return take_numbers<uint64_t>(of, first, last);
    default: return take_bytes(of, first, last);
  }
}

}  // namespace

bool take_rows(const std::vector<RowsTaken>& all, int num_threads) {
  struct Piece {
    const RowsTaken* of;
    int64_t first, last;
  };
  std::vector<Piece> pieces;
  for (const RowsTaken& each : all) {
    if (each.row_bytes == 0) continue;
    const int64_t rows = std::max<int64_t>(1, kBytesTaken / each.row_bytes);
    for (int64_t row = 0; row < each.count; row += rows)
      pieces.push_back({&each, row, std::min(row + rows, each.count)});
  }
  std::atomic<bool> is_whole{true};
  const auto count = static_cast<int64_t>(pieces.size());
  ThreadPool::instance().parallel_for(count, 1, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      if (are_rows(*pieces[i].of, pieces[i].first, pieces[i].last))
        take(*pieces[i].of, pieces[i].first, pieces[i].last);
      else is_whole = false;
  });
  return is_whole;
}

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
