#include "model/quantization_rules.h"

namespace mference {
namespace {

QuantizationRule ReadRule(const JsonReader& rule) {
  const QuantizationRule result{.bits = rule.At("bits").Int(),
                                .group_size = rule.At("group_size").Int()};
  if (result.bits != 2 && result.bits != 4 && result.bits != 8) {
    rule.At("bits").FailHere(fmt::format("expected 2, 4 or 8 bits, found {}", result.bits));
  }
  if (result.group_size != 32 && result.group_size != 64 && result.group_size != 128) {
    rule.At("group_size")
        .FailHere(fmt::format("expected a group of 32, 64 or 128, found {}", result.group_size));
  }
  // Conversions without a mode predate the others: they are affine.
  if (rule.Has("mode") && rule.At("mode").String() != "affine") {
    rule.At("mode").FailHere("only the affine mode is supported, found \"" +
                             rule.At("mode").String() + "\"");
  }
  return result;
}

}  // namespace

QuantizationRules QuantizationRules::Read(const JsonReader& config) {
  const JsonReader block =
      config.At(config.Has("quantization") ? "quantization" : "quantization_config");
  block.RequireObject();
  QuantizationRules rules;
  rules.base_ = ReadRule(block);
  for (const auto& [key, value] : block.value().items()) {
    if (value.is_object()) {
      rules.overrides_.emplace(key, ReadRule(block.At(key)));
    } else if (value.is_boolean() && key.find('.') != std::string::npos) {
      if (value.get<bool>()) continue;  // true: quantised, with the defaults
      rules.overrides_.emplace(key, std::nullopt);
    }
  }
  return rules;
}

std::optional<QuantizationRule> QuantizationRules::For(std::string_view module) const {
  const auto found = overrides_.find(module);
  return found == overrides_.end() ? base_ : found->second;
}

}  // namespace mference
