// Integers beyond 64 bits, so that numbers of a conversation pass a template unchanged.
//
// Only what templates can ask for, and bounded: a result above kMaxBits is an error, as a few
// nested powers would otherwise fill memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mference::jinja {

class BigInt {
 public:
  static constexpr size_t kMaxBits = 16384;  // about 4,900 decimal digits

  BigInt() = default;
  BigInt(int64_t value);  // NOLINT(google-explicit-constructor): an integer is an integer
  // Optional sign and decimal digits; nothing when malformed or above kMaxBits.
  static std::optional<BigInt> FromDecimal(std::string_view digits);
  // Truncates towards zero; nothing for infinities and NaN.
  static std::optional<BigInt> FromDouble(double value);

  std::string ToString() const;
  double ToDouble() const;                 // nearest, ties to even; infinite when out of range
  std::optional<int64_t> ToInt64() const;  // nothing when it does not fit
  bool negative() const { return negative_; }
  bool zero() const { return limbs_.empty(); }
  size_t bits() const;

  BigInt operator-() const;
  friend BigInt operator+(const BigInt& a, const BigInt& b);
  friend BigInt operator-(const BigInt& a, const BigInt& b) { return a + -b; }
  friend BigInt operator*(const BigInt& a, const BigInt& b);
  // Quotient rounded towards minus infinity, and the remainder with the sign of `b`, which must not
  // be zero: Python's // and %.
  static void FloorDivide(const BigInt& a, const BigInt& b, BigInt* quotient, BigInt* remainder);

  // Negative, zero or positive, as a < b, a == b or a > b.
  static int Compare(const BigInt& a, const BigInt& b);
  friend bool operator==(const BigInt& a, const BigInt& b) = default;

 private:
  static int CompareMagnitude(const BigInt& a, const BigInt& b);
  static BigInt AddMagnitude(const BigInt& a, const BigInt& b);
  static BigInt SubtractMagnitude(const BigInt& a, const BigInt& b);  // |a| >= |b|
  void Trim();

  std::vector<uint32_t> limbs_;  // least significant first, no leading zeros
  bool negative_ = false;        // never for zero
};

}  // namespace mference::jinja
