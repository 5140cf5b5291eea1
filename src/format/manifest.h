// `manifest.json`: the contract of a .gturbo directory and the mark that its install finished.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "format/arch_config.h"
#include "format/quant_config.h"

namespace mference {

// The alignment unit of the format: a constant, never the host's page size.
constexpr uint64_t kGturboPageBytes = 16384;
constexpr uint64_t kMaxManifestBytes = uint64_t{4} << 20;

inline constexpr std::string_view kManifestFile = "manifest.json";
inline constexpr std::string_view kReceiptFile = "verified-install.json";
inline constexpr std::string_view kWeightsFile = "model_weights.bin";
inline constexpr std::string_view kLayoutFile = "packed_experts/layout.json";
inline constexpr std::string_view kExpertsDirectory = "packed_experts";
inline constexpr std::string_view kTokenizerDirectory = "tokenizer";
inline constexpr std::string_view kConfigFile = "tokenizer/config.json";
inline constexpr std::string_view kUnpinnedModelId = "unknown/snapshot";

// "layer_07.bin", as in layout.json.
std::string LayerFileName(int64_t layer);

struct FileRecord {
  uint64_t size = 0;
  std::string sha256;  // 64 lower-case hex digits

  bool operator==(const FileRecord&) const = default;
};
using FileTable = std::map<std::string, FileRecord, std::less<>>;  // by path in the directory

struct ManifestFlags {
  bool streaming_present = true;
  bool turbo_quant_kv = false;
  bool ane_shared_expert = false;
};

struct Manifest {
  std::string magic = "GTURBO";
  int64_t version_major = 1;
  int64_t version_minor = 0;
  ManifestFlags flags;
  std::string unknown_flag;  // the first flag this program does not know; empty: none
  std::string model_id;
  std::optional<std::string> source_snapshot_hash;  // "sha256:" + 64 hex of the source index
  ArchConfig arch;
  std::vector<std::string_view> omitted_arch_fields;  // see ParsedArch
  std::optional<QuantConfig> quant;
  std::optional<FlashHeadConfig> flash_head;
  FileTable files;  // all but manifest.json and verified-install.json
  uint64_t experts_per_layer = 0;
  int64_t num_layers = 0;
  uint64_t expert_stride = 0;  // bytes
  std::optional<int64_t> bit_width_overrides_honored;

  // Whether the family's layer `layer` has routed experts.
  bool HasRoutedExperts(int64_t layer) const {
    return experts_per_layer > 0 && layer >= arch.num_dense_layers;
  }
};

// Parses the text and checks types, paths (see path_rules.h) and hash strings: kManifestCorrupt, or
// kUnknownFamily. Meaning is checked by the functions below. `name` is for messages.
Manifest ParseManifest(std::string_view json, const std::string& name);

// The text; `Manifest::arch` decides which extension fields it has.
std::string ManifestToJson(const Manifest& manifest);

// What the catalogue of models says a manifest must describe.
struct ExpectedModel {
  ArchConfig arch;
  bool quant_required = false;  // a production architecture
};

// Magic, version and flags: kNotGturbo, kUnsupportedVersion, kUnknownFlag, kRemovedFeature.
void CheckManifestIdentity(const Manifest& manifest, const std::string& name);
// kArchMismatch, for `arch` and for the top-level fields that repeat it.
void CheckManifestArch(const Manifest& manifest, const ArchConfig& expected,
                       const std::string& name);
// quant, flashHead, stride and the files that must be listed: kQuantMissing, kQuantUnsupported,
// kFlashHeadInvalid, kStrideMisaligned, kMissingFile.
void CheckManifestStructure(const Manifest& manifest, bool quant_required, const std::string& name);

// Throws Error(code) unless the reader holds {path: {size, sha256}} with safe paths; shared with
// the receipt, which lists manifest.json too.
FileTable ParseFileTable(const JsonReader& files, bool allow_manifest);
void WriteFileTable(const FileTable& files, JsonWriter& json);

}  // namespace mference
