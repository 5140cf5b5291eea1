// The `quant` and `flashHead` blocks of a manifest: how the weights are encoded, as declared.
//
// The declaration is nominal: some families' BF16 routers are declared as 8-bit, and a routed
// matrix may use another group. Kernels go by the stored tensors; what is here is checked so that a
// directory with an encoding this program does not know is refused.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "format/arch_config.h"
#include "format/json_writer.h"

namespace mference {

struct QuantSlot {
  int64_t weight_bits = 0;
  std::string scheme = "none";
  std::string scale_type = "none";
  std::string bias_type = "none";
  int64_t group_size = 0;

  bool operator==(const QuantSlot&) const = default;
};

// {bits, "affine", "BF16", "BF16", group}.
QuantSlot AffineSlot(int64_t bits, int64_t group_size = 64);
// What a family without such tensors declares; the default-constructed slot.
inline QuantSlot AbsentSlot() { return {}; }
// Maple's router: {16, "unquantized", "none", "none", 0}.
QuantSlot UnquantizedSlot();

struct QuantConfig {
  QuantSlot embedding;
  QuantSlot attention;
  QuantSlot router;
  QuantSlot shared_expert;
  QuantSlot routed_expert;

  bool operator==(const QuantConfig&) const = default;
};

// Maple's approximate output head.
struct FlashHeadConfig {
  int64_t n_clusters = 0;
  int64_t cluster_size = 0;
  int64_t n_probes = 0;
  int64_t group_size = 0;
  int64_t bits = 0;
  int64_t head_group_size = 0;
  int64_t head_bits = 0;
  bool scaled_centroids = false;
  std::vector<int64_t> force_tokens;

  bool operator==(const FlashHeadConfig&) const = default;
};

QuantConfig ParseQuant(const JsonReader& quant);
FlashHeadConfig ParseFlashHead(const JsonReader& flash_head);
void WriteQuant(const QuantConfig& quant, JsonWriter& json);
void WriteFlashHead(const FlashHeadConfig& flash_head, JsonWriter& json);

// Throws kQuantUnsupported naming the slot, what was found and what the family allows.
void CheckQuant(const QuantConfig& quant, Family family, const std::string& name);
// Throws kFlashHeadInvalid naming the rule.
void CheckFlashHead(const FlashHeadConfig& flash_head, const ArchConfig& arch,
                    const std::string& name);

}  // namespace mference
