#include "constrain/number_range.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace mference {
namespace {

constexpr uint8_t kZero = '0';
constexpr uint8_t kNine = '9';

RegexPtr Digits(uint32_t min, uint32_t max) {
  return RegexRepeat(RegexByte(kZero, kNine), min, max);
}

// Magnitudes between two bounds. A side that is `tight` has had the bound's own digits so far, so
// the next digit is compared with the bound's; else every digit is fine.
class Magnitudes {
 public:
  struct Bound {
    std::string integer;
    std::string fraction;
    bool exclusive = false;
  };

  // `high` null: no bound.
  Magnitudes(Bound low, std::optional<Bound> high, bool integer)
      : low_(std::move(low)), high_(std::move(high)) {
    if (integer) return;
    fraction_digits_ = kMaxFractionDigits + low_.fraction.size();
    if (high_)
      fraction_digits_ = std::max(fraction_digits_, kMaxFractionDigits + high_->fraction.size());
  }

  RegexPtr Build() const {
    size_t most = std::max(kMaxIntegerDigits, low_.integer.size());
    if (high_) most = std::min(most, high_->integer.size());
    std::vector<RegexPtr> parts;
    for (size_t length = low_.integer.size(); length <= most; ++length) {
      parts.push_back(Integer(length, 0, length == low_.integer.size(),
                              high_ && length == high_->integer.size()));
    }
    return RegexAlternate(std::move(parts));
  }

 private:
  static bool AllZeros(const std::string& digits, size_t from) {
    return from >= digits.size() || digits.find_first_not_of('0', from) == std::string::npos;
  }
  static uint8_t DigitAt(const std::string& digits, size_t at) {
    return at < digits.size() ? static_cast<uint8_t>(digits[at]) : kZero;
  }

  // Alternatives for the digit at a place: runs of digits that leave the sides equally tight.
  template <typename Rest>
  static RegexPtr NextDigit(uint8_t least, const uint8_t* low, const uint8_t* high,
                            const Rest& rest) {
    const uint8_t first = low != nullptr ? std::max(least, *low) : least;
    const uint8_t last = high != nullptr ? *high : kNine;
    std::vector<RegexPtr> parts;
    for (uint8_t digit = first; digit <= last;) {
      const bool at_low = low != nullptr && digit == *low;
      const bool at_high = high != nullptr && digit == *high;
      uint8_t run = digit;
      if (!at_low && !at_high) run = high != nullptr ? static_cast<uint8_t>(*high - 1) : last;
      parts.push_back(RegexConcat({RegexByte(digit, run), rest(at_low, at_high)}));
      digit = static_cast<uint8_t>(run + 1);
    }
    return RegexAlternate(std::move(parts));
  }

  RegexPtr Integer(size_t length, size_t at, bool tight_low, bool tight_high) const {
    if (at == length) return Fraction(0, tight_low, tight_high);
    if (!tight_low && !tight_high && at > 0) {
      const auto rest = static_cast<uint32_t>(length - at);
      return RegexConcat({Digits(rest, rest), Fraction(0, false, false)});
    }
    const uint8_t least = at == 0 && length > 1 ? '1' : kZero;
    const uint8_t low = DigitAt(low_.integer, at);
    const uint8_t high = high_ ? DigitAt(high_->integer, at) : kNine;
    return NextDigit(
        least, tight_low ? &low : nullptr, tight_high ? &high : nullptr,
        [&](bool at_low, bool at_high) { return Integer(length, at + 1, at_low, at_high); });
  }

  // What follows `at` digits of the fraction (0: the integer's digits).
  RegexPtr Fraction(size_t at, bool tight_low, bool tight_high) const {
    const bool above = !tight_low || (AllZeros(low_.fraction, at) && !low_.exclusive);
    const bool below = !tight_high || !AllZeros(high_->fraction, at) || !high_->exclusive;
    std::vector<RegexPtr> parts;
    if (above && below) parts.push_back(RegexEmpty());
    if (at < fraction_digits_) {
      RegexPtr more;
      if (!tight_low && !tight_high) {
        more = Digits(1, static_cast<uint32_t>(fraction_digits_ - at));
      } else {
        const uint8_t low = DigitAt(low_.fraction, at);
        const uint8_t high = tight_high ? DigitAt(high_->fraction, at) : kNine;
        more =
            NextDigit(kZero, tight_low ? &low : nullptr, tight_high ? &high : nullptr,
                      [&](bool at_low, bool at_high) { return Fraction(at + 1, at_low, at_high); });
      }
      parts.push_back(at == 0 ? RegexConcat({RegexLiteral("."), more}) : more);
    }
    return RegexAlternate(std::move(parts));
  }

  Bound low_;
  std::optional<Bound> high_;
  size_t fraction_digits_ = 0;
};

Magnitudes::Bound MagnitudeOf(const NumberBound& bound) {
  return {bound.value.integer, bound.value.fraction, bound.exclusive};
}

RegexPtr UnboundedNumber(bool integer) {
  const RegexPtr digits = RegexAlternate(
      {RegexLiteral("0"), RegexConcat({RegexByte('1', kNine), Digits(0, kMaxIntegerDigits - 1)})});
  if (integer) {
    const RegexPtr positive =
        RegexConcat({RegexByte('1', kNine), Digits(0, kMaxIntegerDigits - 1)});
    return RegexAlternate({digits, RegexConcat({RegexLiteral("-"), positive})});
  }
  const RegexPtr exponent = RegexConcat(
      {RegexAlternate({RegexLiteral("e"), RegexLiteral("E")}),
       RegexOptional(RegexAlternate({RegexLiteral("+"), RegexLiteral("-")})), Digits(1, 2)});
  return RegexConcat(
      {RegexOptional(RegexLiteral("-")), digits,
       RegexOptional(RegexConcat({RegexLiteral("."), Digits(1, kMaxFractionDigits)})),
       RegexOptional(exponent)});
}

}  // namespace

Decimal Decimal::Parse(std::string_view json) {
  Decimal decimal;
  if (json.starts_with('-')) {
    decimal.negative = true;
    json.remove_prefix(1);
  }
  const size_t exponent_at = std::min(json.find_first_of("eE"), json.size());
  const std::string_view mantissa = json.substr(0, exponent_at);
  const size_t point = std::min(mantissa.find('.'), mantissa.size());
  decimal.integer = mantissa.substr(0, point);
  decimal.fraction = point < mantissa.size() ? mantissa.substr(point + 1) : std::string_view();
  int exponent = 0;
  if (exponent_at < json.size()) {
    exponent = std::atoi(std::string(json.substr(exponent_at + 1)).c_str());
    exponent = std::clamp(exponent, -999, 999);
  }
  for (; exponent > 0; --exponent) {
    decimal.integer += decimal.fraction.empty() ? '0' : decimal.fraction[0];
    if (!decimal.fraction.empty()) decimal.fraction.erase(0, 1);
  }
  for (; exponent < 0; ++exponent) {
    decimal.fraction.insert(0, 1, decimal.integer.empty() ? '0' : decimal.integer.back());
    if (!decimal.integer.empty()) decimal.integer.pop_back();
  }
  decimal.integer.erase(0,
                        std::min(decimal.integer.find_first_not_of('0'), decimal.integer.size()));
  if (decimal.integer.empty()) decimal.integer = "0";
  while (decimal.fraction.ends_with('0')) decimal.fraction.pop_back();
  if (decimal.is_zero()) decimal.negative = false;
  return decimal;
}

RegexPtr RegexNumber(const NumberLimits& limits) {
  if (!limits.low && !limits.high) return UnboundedNumber(limits.integer);
  std::vector<RegexPtr> parts;
  const Magnitudes::Bound zero = {"0", "", false};
  const Magnitudes::Bound above_zero = {"0", "", true};
  // Numbers from 0 on.
  if (!limits.high || !limits.high->value.negative) {
    const bool from_zero = !limits.low || limits.low->value.negative;
    std::optional<Magnitudes::Bound> high;
    if (limits.high) high = MagnitudeOf(*limits.high);
    parts.push_back(
        Magnitudes(from_zero ? zero : MagnitudeOf(*limits.low), high, limits.integer).Build());
  }
  // Numbers below 0: the bounds change sides.
  if (!limits.low || limits.low->value.negative) {
    const bool to_zero = !limits.high || !limits.high->value.negative;
    std::optional<Magnitudes::Bound> high;
    if (limits.low) high = MagnitudeOf(*limits.low);
    parts.push_back(
        RegexConcat({RegexLiteral("-"), Magnitudes(to_zero ? above_zero : MagnitudeOf(*limits.high),
                                                   high, limits.integer)
                                            .Build()}));
  }
  return RegexAlternate(std::move(parts));
}

}  // namespace mference
