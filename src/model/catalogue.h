// The catalogue: which families there are, and the published checkpoints that are pinned.
//
// A pinned checkpoint is one repository at one revision whose index has a known SHA-256 and whose
// architecture is compiled in. Other checkpoints of a known family install and load too, as
// *unpinned*: their architecture is whatever their config.json derives to. Nothing defaults to a
// family.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/arch_config.h"
#include "format/manifest.h"
#include "model/checkpoint_schema.h"

namespace mference {

// What the install of a pinned checkpoint must come to, known before anything is downloaded.
struct CanonicalPlan {
  uint64_t resident_entries = 0;
  uint64_t weights_file_bytes = 0;  // model_weights.bin
  uint64_t expert_stride = 0;       // bytes
  uint64_t layer_files = 0;
  uint64_t layer_file_bytes = 0;  // of each

  uint64_t pool_bytes() const { return layer_files * layer_file_bytes; }
};

// A file of the source whose content is known.
struct KnownFile {
  std::string_view name;
  uint64_t bytes = 0;
  std::string_view sha256;
};

struct PinnedSource {
  std::string_view name;                      // what users type; the family's key
  std::span<const std::string_view> aliases;  // accepted too
  std::string_view display_name;
  std::string_view repository;
  std::string_view revision;      // 40 hex digits
  std::string_view index_sha256;  // of model.safetensors.index.json
  std::string_view model_id;      // in the manifest
  std::string_view licence;       // shown before a download
  Family family;
  uint64_t download_bytes = 0;   // approximate
  uint64_t installed_bytes = 0;  // approximate
  uint64_t reserve_bytes = 0;    // kept free on the disk besides
  CanonicalPlan plan;
  std::span<const KnownFile> known_files;  // empty: digests were never published
  ArchConfig (*arch)();                    // the baseline

  // Enough to run at the default context: resident weights, 16 slots per layer, and 256 MiB for
  // caches and scratch.
  uint64_t memory_bytes() const;
};

std::span<const PinnedSource> PinnedSources();

// By name, alias, or repository ("org/repo"), ignoring case; nullptr when there is none.
const PinnedSource* FindPinned(std::string_view name);
const PinnedSource* FindPinnedByIndex(std::string_view index_sha256);
const PinnedSource* FindPinnedByModelId(std::string_view model_id);
const PinnedSource& PinnedOf(Family family);

std::span<const CheckpointSchema* const> CheckpointSchemas();
// By config.json's `model_type`. kUnknownFamily, naming the value and what is supported.
const CheckpointSchema& SchemaForConfig(const JsonReader& config);
// kUnknownFamily for a family of the format that nothing here runs.
const CheckpointSchema& SchemaOf(Family family);

constexpr uint64_t kMaxConfigBytes = uint64_t{1} << 20;

// Parses config.json; `name` is for messages. kSourceInvalid.
Json ParseConfig(std::string_view config_json, const std::string& name);
// The architecture that a config.json describes. kUnknownFamily or kSourceInvalid.
ArchConfig DeriveArch(const Json& config, const std::string& name);

// Whether layers and width are those of a pinned checkpoint.
bool IsProductionArch(const ArchConfig& arch);

// What `manifest` must describe, given the config.json installed with it: for a pinned model ID the
// compiled baseline (kArchMismatch when the config derives to something else), for any other what
// the config derives to. A `ModelResolver` for ModelDirectory::Open.
ExpectedModel ResolveModel(const Manifest& manifest, std::string_view config_json);

}  // namespace mference
