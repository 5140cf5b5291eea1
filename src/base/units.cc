#include "base/units.h"

#include <array>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace mference {
namespace {

struct Suffix {
  std::string_view text;
  double factor;
};

constexpr std::array<Suffix, 16> kSuffixes = {{
    {"", 1},
    {"b", 1},
    {"k", 1024.0},
    {"kib", 1024.0},
    {"kb", 1e3},
    {"m", 1024.0 * 1024},
    {"mib", 1024.0 * 1024},
    {"mb", 1e6},
    {"g", 1024.0 * 1024 * 1024},
    {"gib", 1024.0 * 1024 * 1024},
    {"gb", 1e9},
    {"t", 1024.0 * 1024 * 1024 * 1024},
    {"tib", 1024.0 * 1024 * 1024 * 1024},
    {"tb", 1e12},
    {"byte", 1},
    {"bytes", 1},
}};

}  // namespace

uint64_t RoundUp(uint64_t value, uint64_t alignment) {
  const uint64_t remainder = value % alignment;
  if (remainder == 0) return value;
  const uint64_t padding = alignment - remainder;
  if (value > UINT64_MAX - padding) {
    Fail(ErrorCode::kInvalidArgument, "size {} cannot be rounded up to a multiple of {}", value,
         alignment);
  }
  return value + padding;
}

uint64_t ParseByteCount(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data(), end, number);
  std::string suffix;
  for (const char* p = rest; p != end; ++p) {
    if (*p == ' ') continue;
    suffix += static_cast<char>(*p >= 'A' && *p <= 'Z' ? *p - 'A' + 'a' : *p);
  }
  if (status == std::errc() && std::isfinite(number) && number >= 0) {
    for (const Suffix& known : kSuffixes) {
      if (suffix != known.text) continue;
      const double bytes = number * known.factor;
      // 2^63: beyond any memory or disk, and still exactly representable as a double.
      if (bytes < 9223372036854775808.0) return static_cast<uint64_t>(bytes);
    }
  }
  Fail(ErrorCode::kInvalidArgument,
       "'{}' is not a byte count; write a number with an optional unit, such as 2GiB or 1536M",
       text);
}

std::string FormatByteCount(uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= kGiB) return fmt::format("{:.2f} GiB", value / static_cast<double>(kGiB));
  if (bytes >= kMiB) return fmt::format("{:.1f} MiB", value / static_cast<double>(kMiB));
  if (bytes >= kKiB) return fmt::format("{:.1f} KiB", value / static_cast<double>(kKiB));
  return fmt::format("{} B", bytes);
}

}  // namespace mference
