#include "digits.h"

#include <algorithm>
#include <array>

namespace graphmill {

namespace {

constexpr int64_t kMostCharacters = 24, kMostDigits = 18, kMostDecimals = 22;
constexpr int64_t kExact = int64_t{1} << 53;  // whole numbers below it are float64s: so is their quotient by a power
constexpr uint8_t kBad = 255;

constexpr std::array<uint8_t, 256> hex_values() {
  std::array<uint8_t, 256> values{};
  for (auto& value : values) value = kBad;
  for (int i = 0; i < 10; ++i) values['0' + i] = static_cast<uint8_t>(i);
  for (int i = 0; i < 6; ++i) values['a' + i] = values['A' + i] = static_cast<uint8_t>(10 + i);
  return values;
}
constexpr std::array<uint8_t, 256> kHex = hex_values();

constexpr std::array<double, kMostDecimals + 1> powers_of_ten() {  // each exact
  std::array<double, kMostDecimals + 1> powers{1.0};
  for (size_t i = 1; i < powers.size(); ++i) powers[i] = powers[i - 1] * 10.0;
  return powers;
}
constexpr std::array<double, kMostDecimals + 1> kPowers = powers_of_ten();

Decimal decimal(const uint8_t* text, int64_t length, double& value) {
  if (length < 1 || length > kMostCharacters) return Decimal::kNone;
  int64_t mantissa = 0, num_digits = 0, num_decimals = 0;
  bool has_point = false;
  for (int64_t i = 0; i < length; ++i) {
    if (text[i] == '.' && !has_point) {
      has_point = true;
    } else if (text[i] >= '0' && text[i] <= '9') {
      if (++num_digits <= kMostDigits) mantissa = mantissa * 10 + (text[i] - '0');
      num_decimals += has_point;
    } else {
      return Decimal::kNone;
    }
  }
  if (!num_digits) return Decimal::kNone;
  if (num_digits > kMostDigits || mantissa >= kExact || num_decimals > kMostDecimals) return Decimal::kLong;
  value = static_cast<double>(mantissa) / kPowers[num_decimals];
  return Decimal::kExact;
}

}  // namespace

void decimals(const TextFields& fields, double* values, Decimal* kinds) {
  for (int64_t i = 0; i < fields.count; ++i) {
    values[i] = __builtin_nan("");
    kinds[i] = decimal(fields.data + fields.begins[i], fields.ends[i] - fields.begins[i], values[i]);
  }
}

void hex_numbers(const TextFields& fields, uint32_t* values, bool* is_good) {
  for (int64_t i = 0; i < fields.count; ++i) {
    const int64_t length = fields.ends[i] - fields.begins[i];
    bool good = length >= 1 && length <= 8;
    uint32_t value = 0;
    for (int64_t at = 0; good && at < length; ++at) {
      const uint8_t digit = kHex[fields.data[fields.begins[i] + at]];
      good = digit != kBad;
      value = value << 4 | (digit & 15u);
    }
    values[i] = good ? value : 0;
    is_good[i] = good;
  }
}

void hex_bytes(const TextFields& fields, uint8_t* bytes, bool* is_good) {
  for (int64_t i = 0; i < fields.count; ++i, bytes += 8) {
    const int64_t length = fields.ends[i] - fields.begins[i];
    bool good = length <= 16;
    std::fill_n(bytes, 8, uint8_t{0});
    for (int64_t at = 0; at < std::min<int64_t>(length, 16); ++at) {
      const uint8_t digit = kHex[fields.data[fields.begins[i] + at]];
      good &= digit != kBad;
      bytes[at / 2] |= static_cast<uint8_t>((digit & 15u) << (at % 2 ? 0 : 4));
    }
    is_good[i] = good;
  }
}

}  // namespace graphmill
