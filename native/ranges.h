// Rows and ranges of rows as they are, of any format: how a batch is cut out of the arrays of a graph, or of many.
#pragma once
#include <cstdint>
#include <vector>

namespace graphmill {

// Range i is [begins[i], begins[i] + offsets[i + 1] - offsets[i]) of a table, and goes to offsets[i] of the output.
struct Ranges {
  const int64_t* begins;
  const int64_t* offsets;  // [num_ranges + 1], from 0
  int64_t num_ranges;
};

// Whether all lie within a table of so many rows, and the output has a place for each.
bool ranges_fit(const Ranges& ranges, int64_t num_rows, int64_t num_out);

// Rows of `row_bytes` bytes.
void copy_ranges(const void* table, int64_t row_bytes, const Ranges& ranges, void* out, int num_threads);

// Rows of `row_bytes` bytes to places that may be anywhere: out[places[i]] = table[rows[i]].
void copy_rows(const void* table, int64_t row_bytes, const int64_t* rows, const int64_t* places, int64_t count,
               void* out, int num_threads);

// Rows of one table by number: out[i] = table[ids[i]].
struct RowsTaken {
  const char* table;
  int64_t num_rows, row_bytes;
  const int64_t* ids;
  int64_t count;
  char* out;  // [count * row_bytes]
};

// All of them, shared out to threads together. false: an id lies outside its table; what was written then is of no use.
bool take_rows(const std::vector<RowsTaken>& all, int num_threads);

// Numbers, to each of which the range's shift is added. Defined for int32_t and int64_t.
template <class Out>
void copy_ranges_shifted(const int32_t* table, const Ranges& ranges, const int64_t* shifts, Out* out, int num_threads);

}  // namespace graphmill
