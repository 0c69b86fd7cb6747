// Numbers out of text: many fields at once, each [begin, end) of the same bytes.
#pragma once
#include <cstdint>

namespace graphmill {

struct TextFields {
  const uint8_t* data;
  const int64_t *begins, *ends;  // [count]
  int64_t count;
};

enum class Decimal : uint8_t { kNone, kExact, kLong };  // kLong: it is a number, and its value is not made here

// Fields of 1 to 24 digits with at most one point: the nearest float64.
void decimals(const TextFields& fields, double* values, Decimal* kinds);
// Fields of 1 to 8 hexadecimal digits; the others give 0.
void hex_numbers(const TextFields& fields, uint32_t* values, bool* is_good);
// Fields of up to 16 hexadecimal digits, read from the left, as 8 bytes; a digit that is none counts as 15.
void hex_bytes(const TextFields& fields, uint8_t* bytes, bool* is_good);

}  // namespace graphmill
