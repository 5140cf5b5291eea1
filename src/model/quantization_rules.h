// The `quantization` block of a source config.json: bits and group size per module.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace mference {

struct QuantizationRule {
  int64_t bits = 0;
  int64_t group_size = 0;

  bool operator==(const QuantizationRule&) const = default;
};

// Defaults and per-module overrides, as the MLX conversion writes them. Immutable.
class QuantizationRules {
 public:
  // Reads `quantization`, or `quantization_config` where that is missing. kSourceInvalid without
  // either, for a mode that is not affine, and for widths nothing here can read.
  static QuantizationRules Read(const JsonReader& config);

  // Of module `X` (a tensor's name without ".weight"). Empty: declared as not quantised.
  std::optional<QuantizationRule> For(std::string_view module) const;

  const QuantizationRule& base() const { return base_; }
  size_t override_count() const { return overrides_.size(); }

 private:
  QuantizationRule base_;
  std::map<std::string, std::optional<QuantizationRule>, std::less<>> overrides_;
};

}  // namespace mference
