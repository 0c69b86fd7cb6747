// Sweeps over rows of cost matrices.
#include "assignment.h"

#include <cstdint>
#include <cstring>

#include "lanes.h"
#include "vectors.h"

namespace graphmill {
namespace {

template <class W, class C>
inline Wide<W> costs_at(const C* p) {
  if constexpr (sizeof(C) == sizeof(W)) {
    return lanes<kWide<W>>(p);
  } else {
    return __builtin_convertvector(lanes<kWide<W>>(p), Wide<W>);
  }
}

template <class V>
inline V smaller(V a, V b) {
  return a < b ? a : b;
}

template <class W>
inline W smallest_lane(Wide<W> v) {
  W least = v[0];
  for (int lane = 1; lane < kWide<W>; ++lane) least = v[lane] < least ? v[lane] : least;
  return least;
}

// Bit l is set where lane l is at most the limit.
template <class W>
inline unsigned lanes_within(Wide<W> values, Wide<W> limit) {
#if defined(__AVX512F__)
  if constexpr (sizeof(W) == 8) {
    __m512d a, b;
    memcpy(&a, &values, 64);
    memcpy(&b, &limit, 64);
    if constexpr (W(0.5) != 0) return _mm512_cmp_pd_mask(a, b, _CMP_LE_OQ);
    return _mm512_cmple_epi64_mask(_mm512_castpd_si512(a), _mm512_castpd_si512(b));
  }
#elif defined(__AVX2__)
  const auto within = values <= limit;
  __m256d mask;
  memcpy(&mask, &within, 32);
  return static_cast<unsigned>(_mm256_movemask_pd(mask));
#endif
  unsigned bits = 0;
  for (int lane = 0; lane < kWide<W>; ++lane) bits |= static_cast<unsigned>(values[lane] <= limit[lane]) << lane;
  return bits;
}

// Rows first … first + kRows of a matrix: a column's least and its row are loaded and stored once for all of them.
template <int kRows, class C, class W>
bool lower_columns(const C* costs, int64_t first, int64_t num_columns, W* least, int64_t* rows) {
  constexpr int L = kWide<W>;
  const C* row = costs + first * num_columns;
  Wide<W> odds[kRows]{};  // x - x is 0, but NaN for what is infinite or NaN
  W odd{};
  int64_t j = 0;
  for (; j + L <= num_columns; j += L) {
    Wide<W> low = lanes<L>(least + j);
    Wide<int64_t> of_low = lanes<L>(rows + j);
    for (int q = 0; q < kRows; ++q) {
      const Wide<W> cost = costs_at<W>(row + q * num_columns + j);
      const auto is_less = cost < low;
      of_low = is_less ? first + q - Wide<int64_t>{} : of_low;
      low = is_less ? cost : low;
      odds[q] += cost - cost;
    }
    put(least + j, low);
    put(rows + j, of_low);
  }
  for (int q = 0; q < kRows; ++q)
    for (int lane = 0; lane < L; ++lane) odd += odds[q][lane];
  for (; j < num_columns; ++j)
    for (int q = 0; q < kRows; ++q) {
      const auto cost = static_cast<W>(row[q * num_columns + j]);
      if (cost < least[j]) least[j] = cost, rows[j] = first + q;
      odd += cost - cost;
    }
  return odd == 0;
}

template <class C, class W>
void least_of_columns(const C* costs, int64_t num_rows, int64_t num_columns, W* least, int64_t* rows,
                      bool* all_finite) {
  constexpr int kAtOnce = 4;
  for (int64_t j = 0; j < num_columns; ++j) least[j] = kInfeasible<W>, rows[j] = -1;
  int64_t i = 0;
  for (; i + kAtOnce <= num_rows; i += kAtOnce)
    *all_finite &= lower_columns<kAtOnce>(costs, i, num_columns, least, rows);
  for (; i < num_rows; ++i) *all_finite &= lower_columns<1>(costs, i, num_columns, least, rows);
}

template <class C, class W>
void lower_potentials(W* potentials, const C* row, W u, int64_t num_columns) {
  constexpr int L = kWide<W>;
  const Wide<W> shift = u - Wide<W>{};
  int64_t j = 0;
  for (; j + L <= num_columns; j += L)
    put(potentials + j, smaller(costs_at<W>(row + j) - shift, lanes<L>(potentials + j)));
  for (; j < num_columns; ++j) potentials[j] = smaller<W>(static_cast<W>(row[j]) - u, potentials[j]);
}

template <class C, class W>
W least_reduced(const C* row, const W* potentials, int64_t num_columns, bool* all_finite) {
  constexpr int L = kWide<W>, kAtOnce = 4;  // independent minima, so that one does not wait for the other
  W least = kInfeasible<W>, odd{};
  int64_t j = 0;
  Wide<W> lows[kAtOnce], odds[kAtOnce];  // x - x is 0, but NaN for what is infinite or NaN
  for (int q = 0; q < kAtOnce; ++q) lows[q] = least - Wide<W>{}, odds[q] = Wide<W>{};
  for (; j + L * kAtOnce <= num_columns; j += L * kAtOnce)
    for (int q = 0; q < kAtOnce; ++q) {
      const Wide<W> reduced = costs_at<W>(row + j + q * L) - lanes<L>(potentials + j + q * L);
      lows[q] = smaller(reduced, lows[q]);
      odds[q] += reduced - reduced;
    }
  least = smallest_lane<W>(smaller(smaller(lows[0], lows[1]), smaller(lows[2], lows[3])));
  const Wide<W> all_odds = (odds[0] + odds[1]) + (odds[2] + odds[3]);
  for (int lane = 0; lane < L; ++lane) odd += all_odds[lane];
  for (; j < num_columns; ++j) {
    const W reduced = static_cast<W>(row[j]) - potentials[j];
    least = smaller<W>(reduced, least);
    odd += reduced - reduced;
  }
  if (odd != 0) *all_finite = false;
  return least;
}

template <class C, class W>
int64_t columns_within(const C* row, const W* potentials, int64_t begin, int64_t end, W limit, int64_t capacity,
                       int32_t* columns, W* costs) {
  constexpr int L = kWide<W>, kAtOnce = 4;
  const Wide<W> limits = limit - Wide<W>{};
  int64_t count = 0, j = begin;
  for (; j + L * kAtOnce <= end && count < capacity; j += L * kAtOnce) {
    uint64_t bits = 0;
    for (int q = 0; q < kAtOnce; ++q)
      bits |= static_cast<uint64_t>(
                  lanes_within<W>(costs_at<W>(row + j + q * L) - lanes<L>(potentials + j + q * L), limits))
              << (q * L);
    for (; bits != 0 && count < capacity; bits &= bits - 1) {
      const int64_t column = j + __builtin_ctzll(bits);
      columns[count] = static_cast<int32_t>(column);
      costs[count++] = static_cast<W>(row[column]);
    }
  }
  for (; j < end && count < capacity; ++j)
    if (static_cast<W>(row[j]) - potentials[j] <= limit) {
      columns[count] = static_cast<int32_t>(j);
      costs[count++] = static_cast<W>(row[j]);
    }
  return count;
}

template <class C, class W>
int64_t two_least(const C* row, const W* potentials, int64_t num_columns, W* least, W* second) {
  constexpr int L = kWide<W>;
  const Wide<W> far = kInfeasible<W> - Wide<W>{};
  Wide<W> first = far, next = far;
  Wide<int64_t> number{}, of_first{};  // of the vector that holds a lane's smallest
  static_assert(sizeof(W) == sizeof(int64_t));
  int64_t j = 0;
  for (; j + L <= num_columns; j += L, number += 1) {
    const Wide<W> reduced = costs_at<W>(row + j) - lanes<L>(potentials + j);
    const auto is_less = reduced < first;
    next = smaller(is_less ? first : reduced, next);
    of_first = is_less ? number : of_first;
    first = is_less ? reduced : first;
  }
  *least = *second = kInfeasible<W>;
  int64_t column = -1;
  const auto add = [&](W reduced, int64_t of) {
    if (reduced < *least || (reduced == *least && of < column)) {
      *second = *least;
      *least = reduced;
      column = of;
    } else if (reduced < *second) {
      *second = reduced;
    }
  };
  for (int lane = 0; lane < L; ++lane) {
    if (first[lane] < kInfeasible<W>) add(first[lane], of_first[lane] * L + lane);
    if (next[lane] < *second) *second = next[lane];
  }
  for (; j < num_columns; ++j)
    if (const W reduced = static_cast<W>(row[j]) - potentials[j]; reduced < kInfeasible<W>) add(reduced, j);
  return column;
}

template <class C, class W>
int64_t columns_closer(const C* row, const W* potentials, W shift, const W* distances, W limit, int64_t num_columns,
                       int32_t* columns, W* costs) {
  constexpr int L = kWide<W>, kAtOnce = 4;
  const Wide<W> shifts = shift - Wide<W>{}, limits = limit - Wide<W>{};
  int64_t count = 0, j = 0;
  for (; j + L * kAtOnce <= num_columns; j += L * kAtOnce) {
    uint64_t bits = 0;
    for (int q = 0; q < kAtOnce; ++q) {
      const int64_t at = j + q * L;
      const Wide<W> distance = costs_at<W>(row + at) - lanes<L>(potentials + at) - shifts;
      const unsigned farther = lanes_within<W>(smaller(lanes<L>(distances + at), limits), distance);
      bits |= static_cast<uint64_t>(~farther & ((1u << L) - 1)) << (q * L);
    }
    for (; bits != 0; bits &= bits - 1) {
      const int64_t column = j + __builtin_ctzll(bits);
      columns[count] = static_cast<int32_t>(column);
      costs[count++] = static_cast<W>(row[column]);
    }
  }
  for (; j < num_columns; ++j) {
    const W distance = static_cast<W>(row[j]) - potentials[j] - shift;
    if (!(distance < distances[j] && distance < limit)) continue;
    columns[count] = static_cast<int32_t>(j);
    costs[count++] = static_cast<W>(row[j]);
  }
  return count;
}

}  // namespace

namespace GRAPHMILL_ISA {

extern const AssignmentKernels<float, double> assignment_float;
const AssignmentKernels<float, double> assignment_float = {
    least_of_columns<float, double>, lower_potentials<float, double>, least_reduced<float, double>,
    two_least<float, double>,        columns_closer<float, double>,   columns_within<float, double>};
extern const AssignmentKernels<double, double> assignment_double;
const AssignmentKernels<double, double> assignment_double = {
    least_of_columns<double, double>, lower_potentials<double, double>, least_reduced<double, double>,
    two_least<double, double>,        columns_closer<double, double>,   columns_within<double, double>};
extern const AssignmentKernels<int64_t, int64_t> assignment_int64;
const AssignmentKernels<int64_t, int64_t> assignment_int64 = {
    least_of_columns<int64_t, int64_t>, lower_potentials<int64_t, int64_t>, least_reduced<int64_t, int64_t>,
    two_least<int64_t, int64_t>,        columns_closer<int64_t, int64_t>,   columns_within<int64_t, int64_t>};

}  // namespace GRAPHMILL_ISA
}  // namespace graphmill
