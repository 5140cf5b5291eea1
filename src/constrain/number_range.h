// Decimal numbers between two bounds, exactly, as a regular language of their digits.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "constrain/regex.h"

namespace mference {

// A number in plain decimal digits, of any size.
struct Decimal {
  bool negative = false;
  std::string integer = "0";  // no leading zeros, but "0" itself
  std::string fraction;       // no trailing zeros

  bool is_zero() const { return integer == "0" && fraction.empty(); }
  // From a JSON number with or without an exponent (of at most three digits).
  static Decimal Parse(std::string_view json);
};

struct NumberBound {
  Decimal value;
  bool exclusive = false;
};

struct NumberLimits {
  std::optional<NumberBound> low;
  std::optional<NumberBound> high;
  bool integer = false;  // no fraction
};

// Digits that are written at most, so that a number always ends. Beyond a bound's own digits, a
// fraction of a bounded number has kMaxFractionDigits.
inline constexpr size_t kMaxIntegerDigits = 18;
inline constexpr size_t kMaxFractionDigits = 12;

// The numbers within the limits, as JSON writes them without an exponent: no leading zeros, no
// negative zero (but fractions may end in zeros). Null if there are none. Without any bound numbers
// that are no integers may have an exponent of at most two digits.
RegexPtr RegexNumber(const NumberLimits& limits);

}  // namespace mference
