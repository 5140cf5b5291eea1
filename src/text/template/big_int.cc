#include "text/template/big_int.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/template/template.h"

namespace mference::jinja {
namespace {

constexpr uint64_t kBase = uint64_t{1} << 32;
constexpr size_t kMaxLimbs = BigInt::kMaxBits / 32;

void CheckSize(size_t limbs) {
  if (limbs > kMaxLimbs) {
    throw TemplateError(TemplateErrorKind::kLimit,
                        fmt::format("an integer has more than {} bits", BigInt::kMaxBits));
  }
}

// limbs = limbs * factor + addend.
void MultiplyAdd(std::vector<uint32_t>& limbs, uint32_t factor, uint32_t addend) {
  uint64_t carry = addend;
  for (uint32_t& limb : limbs) {
    carry += uint64_t{limb} * factor;
    limb = static_cast<uint32_t>(carry);
    carry >>= 32;
  }
  if (carry != 0) limbs.push_back(static_cast<uint32_t>(carry));
}

// limbs = limbs / divisor; returns the remainder.
uint32_t DivideSmall(std::vector<uint32_t>& limbs, uint32_t divisor) {
  uint64_t remainder = 0;
  for (size_t i = limbs.size(); i-- > 0;) {
    remainder = (remainder << 32) | limbs[i];
    limbs[i] = static_cast<uint32_t>(remainder / divisor);
    remainder %= divisor;
  }
  while (!limbs.empty() && limbs.back() == 0) limbs.pop_back();
  return static_cast<uint32_t>(remainder);
}

}  // namespace

BigInt::BigInt(int64_t value) : negative_(value < 0) {
  // Negating in unsigned arithmetic is defined for the smallest value too.
  uint64_t magnitude = negative_ ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  for (; magnitude != 0; magnitude >>= 32) limbs_.push_back(static_cast<uint32_t>(magnitude));
}

std::optional<BigInt> BigInt::FromDecimal(std::string_view digits) {
  BigInt result;
  bool negative = false;
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) {
    negative = digits[0] == '-';
    digits.remove_prefix(1);
  }
  if (digits.empty()) return std::nullopt;
  for (const char c : digits) {
    if (c < '0' || c > '9') return std::nullopt;
    MultiplyAdd(result.limbs_, 10, static_cast<uint32_t>(c - '0'));
    if (result.limbs_.size() > kMaxLimbs) return std::nullopt;
  }
  result.negative_ = negative;
  result.Trim();
  return result;
}

std::optional<BigInt> BigInt::FromDouble(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  int exponent = 0;
  const double fraction = std::frexp(std::trunc(value), &exponent);  // |fraction| in [0.5, 1)
  if (exponent <= 63) return BigInt(static_cast<int64_t>(std::trunc(value)));
  BigInt result(static_cast<int64_t>(std::ldexp(fraction, 53)));
  BigInt scale(1);
  for (int i = 53; i < exponent; ++i) scale = scale + scale;
  return result * scale;
}

std::string BigInt::ToString() const {
  if (zero()) return "0";
  constexpr uint32_t kChunk = 1'000'000'000;  // nine digits a division
  std::string reversed;
  for (std::vector<uint32_t> rest = limbs_; !rest.empty();) {
    uint32_t chunk = DivideSmall(rest, kChunk);
    for (int i = 0; i < 9 && (!rest.empty() || chunk != 0); ++i, chunk /= 10) {
      reversed.push_back(static_cast<char>('0' + chunk % 10));
    }
  }
  if (negative_) reversed.push_back('-');
  std::reverse(reversed.begin(), reversed.end());
  return reversed;
}

double BigInt::ToDouble() const {
  // The top 64 bits, with everything below folded into the lowest one so that ties round right.
  const size_t width = bits();
  uint64_t top = 0;
  bool sticky = false;
  const size_t shift = width > 64 ? width - 64 : 0;
  for (size_t bit = width; bit-- > 0;) {
    const bool set = ((limbs_[bit / 32] >> (bit % 32)) & 1U) != 0;
    if (bit >= shift) {
      top = (top << 1) | (set ? 1U : 0U);
    } else {
      sticky = sticky || set;
    }
  }
  if (sticky) top |= 1;
  const double magnitude = std::ldexp(static_cast<double>(top), static_cast<int>(shift));
  return negative_ ? -magnitude : magnitude;
}

std::optional<int64_t> BigInt::ToInt64() const {
  if (limbs_.size() > 2) return std::nullopt;
  uint64_t magnitude = 0;
  for (size_t i = limbs_.size(); i-- > 0;) magnitude = (magnitude << 32) | limbs_[i];
  const uint64_t limit = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (magnitude > limit + (negative_ ? 1 : 0)) return std::nullopt;
  return static_cast<int64_t>(negative_ ? 0 - magnitude : magnitude);
}

size_t BigInt::bits() const {
  if (zero()) return 0;
  size_t bits = (limbs_.size() - 1) * 32;
  for (uint32_t top = limbs_.back(); top != 0; top >>= 1) ++bits;
  return bits;
}

BigInt BigInt::operator-() const {
  BigInt result = *this;
  result.negative_ = !negative_ && !zero();
  return result;
}

int BigInt::CompareMagnitude(const BigInt& a, const BigInt& b) {
  if (a.limbs_.size() != b.limbs_.size()) return a.limbs_.size() < b.limbs_.size() ? -1 : 1;
  for (size_t i = a.limbs_.size(); i-- > 0;) {
    if (a.limbs_[i] != b.limbs_[i]) return a.limbs_[i] < b.limbs_[i] ? -1 : 1;
  }
  return 0;
}

int BigInt::Compare(const BigInt& a, const BigInt& b) {
  if (a.negative_ != b.negative_) return a.negative_ ? -1 : 1;
  return a.negative_ ? CompareMagnitude(b, a) : CompareMagnitude(a, b);
}

BigInt BigInt::AddMagnitude(const BigInt& a, const BigInt& b) {
  BigInt sum;
  uint64_t carry = 0;
  for (size_t i = 0; i < std::max(a.limbs_.size(), b.limbs_.size()) || carry != 0; ++i) {
    if (i < a.limbs_.size()) carry += a.limbs_[i];
    if (i < b.limbs_.size()) carry += b.limbs_[i];
    sum.limbs_.push_back(static_cast<uint32_t>(carry));
    carry >>= 32;
  }
  CheckSize(sum.limbs_.size());
  return sum;
}

BigInt BigInt::SubtractMagnitude(const BigInt& a, const BigInt& b) {
  BigInt difference;
  uint64_t borrow = 0;
  for (size_t i = 0; i < a.limbs_.size(); ++i) {
    const uint64_t take = borrow + (i < b.limbs_.size() ? b.limbs_[i] : 0);
    borrow = a.limbs_[i] < take ? 1 : 0;
    difference.limbs_.push_back(static_cast<uint32_t>(a.limbs_[i] + borrow * kBase - take));
  }
  difference.Trim();
  return difference;
}

BigInt operator+(const BigInt& a, const BigInt& b) {
  BigInt sum;
  if (a.negative_ == b.negative_) {
    sum = BigInt::AddMagnitude(a, b);
    sum.negative_ = a.negative_;
  } else if (BigInt::CompareMagnitude(a, b) >= 0) {
    sum = BigInt::SubtractMagnitude(a, b);
    sum.negative_ = a.negative_;
  } else {
    sum = BigInt::SubtractMagnitude(b, a);
    sum.negative_ = b.negative_;
  }
  sum.Trim();
  return sum;
}

BigInt operator*(const BigInt& a, const BigInt& b) {
  CheckSize(a.zero() || b.zero() ? 0 : a.limbs_.size() + b.limbs_.size() - 1);
  BigInt product;
  product.limbs_.assign(a.limbs_.size() + b.limbs_.size(), 0);
  for (size_t i = 0; i < a.limbs_.size(); ++i) {
    uint64_t carry = 0;
    for (size_t j = 0; j < b.limbs_.size() || carry != 0; ++j) {
      carry += product.limbs_[i + j];
      if (j < b.limbs_.size()) carry += uint64_t{a.limbs_[i]} * b.limbs_[j];
      product.limbs_[i + j] = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
  }
  product.negative_ = a.negative_ != b.negative_;
  product.Trim();
  CheckSize(product.limbs_.size());
  return product;
}

void BigInt::FloorDivide(const BigInt& a, const BigInt& b, BigInt* quotient, BigInt* remainder) {
  // Shift and subtract, a bit at a time: operands are small and this is rare.
  BigInt q;
  BigInt r;
  BigInt divisor = b;
  divisor.negative_ = false;
  q.limbs_.assign(a.limbs_.size(), 0);
  for (size_t bit = a.bits(); bit-- > 0;) {
    MultiplyAdd(r.limbs_, 2, (a.limbs_[bit / 32] >> (bit % 32)) & 1U);
    if (CompareMagnitude(r, divisor) >= 0) {
      r = SubtractMagnitude(r, divisor);
      q.limbs_[bit / 32] |= uint32_t{1} << (bit % 32);
    }
  }
  q.Trim();
  q.negative_ = !q.zero() && a.negative_ != b.negative_;
  r.negative_ = !r.zero() && a.negative_;
  if (!r.zero() && a.negative_ != b.negative_) {
    q = q - BigInt(1);
    r = r + b;
  }
  *quotient = std::move(q);
  *remainder = std::move(r);
}

void BigInt::Trim() {
  while (!limbs_.empty() && limbs_.back() == 0) limbs_.pop_back();
  if (limbs_.empty()) negative_ = false;
}

}  // namespace mference::jinja
