// What a family's checkpoint looks like: which config.json it has, which tensors, in which order.
//
// One `CheckpointSchema` per family is all that the installer and the loader know about a family.
// It says how the architecture follows from config.json, and lists every resident tensor of such an
// architecture with its logical shape, in the canonical order of the .gturbo format (3.4, 3.5):
// group, layer, slot. The list is the order; it is written down once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "format/arch_config.h"

namespace mference {

enum class Storage : uint8_t {
  kAffine,     // packed U32 with .scales and .biases
  kTernary,    // packed 2-bit U32 with one BF16 .row_alpha per row
  kBf16,       // as it is
  kF32,        //
  kI64,        //
  kBf16OrF32,  // published both ways: the file decides
};

// Sort groups of the resident payload.
enum class TensorGroup : uint8_t { kEmbedding, kLayer, kOther, kFinalNorm, kHead };

// Which slot of the manifest's `quant` block a quantised tensor speaks for.
enum class QuantRole : uint8_t { kNone, kEmbedding, kAttention, kRouter, kSharedExpert };

struct TensorSpec {
  std::string name;  // complete; companions have no entry of their own
  Storage storage = Storage::kBf16;
  std::vector<int64_t> shape;  // logical, outermost first
  TensorGroup group = TensorGroup::kLayer;
  int64_t layer = 0;  // within kLayer
  QuantRole role = QuantRole::kNone;
};

// Writes the list down in order. `Section` sets the group and the prefix of the names that follow.
class TensorListBuilder {
 public:
  void Section(TensorGroup group, std::string prefix, int64_t layer = 0);

  // `name`.weight with its companions.
  void Affine(std::string_view name, std::vector<int64_t> shape, QuantRole role = QuantRole::kNone);
  void Ternary(std::string_view name, std::vector<int64_t> shape,
               QuantRole role = QuantRole::kNone);
  // `name`.weight, a BF16 vector.
  void Norm(std::string_view name, int64_t size);
  // `name` as it is, suffix included.
  void Plain(std::string_view name, std::vector<int64_t> shape, Storage storage = Storage::kBf16);

  std::vector<TensorSpec> Take() { return std::move(tensors_); }

 private:
  void Add(const std::string& name, Storage storage, std::vector<int64_t> shape, QuantRole role);

  TensorGroup group_ = TensorGroup::kEmbedding;
  std::string prefix_;
  int64_t layer_ = 0;
  std::vector<TensorSpec> tensors_;
};

// Plain data: one constant per family.
struct CheckpointSchema {
  Family family;
  std::string_view key;         // on the command line: "gemma4"
  std::string_view model_type;  // of config.json

  // Throws kSourceInvalid for a config this family's forward pass could not honour.
  ArchConfig (*derive_arch)(const JsonReader& config);
  // Every resident tensor of the architecture, in order.
  std::vector<TensorSpec> (*resident_tensors)(const ArchConfig& arch);

  std::string_view prefix;         // of everything kept, except `outside_prefix`
  std::string_view layers_prefix;  // of layer L: this + "L."
  std::string_view routed_prefix;  // within the layer: this + "{gate,up,down}_proj"
  Storage routed_storage = Storage::kAffine;
  std::span<const std::string_view> outside_prefix;  // kept although they do not begin with it
  std::span<const std::string_view> excluded;        // prefixes of what is never stored
  bool drops_extra_layers = false;  // layers past the last one are a draft head: left out
};

enum class TensorFate : uint8_t { kResident, kRouted, kExcluded, kUnknown };

// What becomes of a source tensor, companions included. kUnknown: the name has no place in such a
// checkpoint, which must abort an install.
TensorFate FateOf(const CheckpointSchema& schema, const ArchConfig& arch, std::string_view name);

// The layer of `name`, or -1 when it is not under `layers_prefix`.
int64_t LayerOf(const CheckpointSchema& schema, std::string_view name);

// "model.layers.7.mlp.switch_mlp.gate_proj" for matrix "gate".
std::string RoutedModule(const CheckpointSchema& schema, int64_t layer, std::string_view matrix);

// The families, each with its folder's name.
const CheckpointSchema& Gemma4Schema();
const CheckpointSchema& Qwen36Schema();
const CheckpointSchema& DeepseekV4Schema();
const CheckpointSchema& InklingSchema();
const CheckpointSchema& MapleSchema();

}  // namespace mference
