#include "format/manifest.h"

#include <array>
#include <utility>
#include <vector>

#include "base/error.h"
#include "format/path_rules.h"

namespace mference {
namespace {

struct FlagField {
  const char* name;
  bool ManifestFlags::*member;
};

constexpr auto kFlags = std::to_array<FlagField>({
    {"streamingPresent", &ManifestFlags::streaming_present},
    {"turboQuantKV", &ManifestFlags::turbo_quant_kv},
    {"aneSharedExpert", &ManifestFlags::ane_shared_expert},
});

void ParseFlags(const JsonReader& flags, Manifest& manifest) {
  flags.RequireObject();
  for (const auto& [key, value] : flags.value().items()) {
    const bool flag = flags.At(key).Bool();
    bool known = false;
    for (const FlagField& field : kFlags) {
      if (key != field.name) continue;
      manifest.flags.*field.member = flag;
      known = true;
    }
    if (!known && manifest.unknown_flag.empty()) manifest.unknown_flag = key;
  }
}

bool ListsLayer(const Manifest& manifest, int64_t layer) {
  const std::string directory = std::string(kExpertsDirectory) + "/";
  return manifest.files.contains(directory + LayerFileName(layer)) ||
         manifest.files.contains(fmt::format("{}layer_{}.bin", directory, layer));
}

}  // namespace

std::string LayerFileName(int64_t layer) { return fmt::format("layer_{:02}.bin", layer); }

FileTable ParseFileTable(const JsonReader& files, bool allow_manifest) {
  files.RequireObject();
  FileTable table;
  std::vector<std::string_view> paths;
  for (const auto& [path, value] : files.value().items()) {
    if (const std::string problem = PathProblem(path); !problem.empty()) {
      // Escaped: it may hold anything.
      const std::string shown = Json(path).dump(-1, ' ', true, Json::error_handler_t::replace);
      files.FailHere(fmt::format("{} is {}", shown, problem));
    }
    const std::string folded = AsciiLower(path);
    const bool is_manifest = folded == kManifestFile;
    if ((is_manifest && (!allow_manifest || path != kManifestFile)) || folded == kReceiptFile ||
        folded == kTokenizerDirectory) {
      files.FailHere(fmt::format("'{}' cannot be listed as a file", path));
    }
    const JsonReader record = files.At(path);
    const std::string sha256 = record.At("sha256").String();
    if (!IsSha256Hex(sha256)) record.At("sha256").FailHere("expected 64 hex digits");
    paths.push_back(
        table.emplace(path, FileRecord{record.At("size").Uint(), AsciiLower(sha256)}).first->first);
  }
  if (const std::string problem = PathSetProblem(paths); !problem.empty()) {
    files.FailHere(problem);
  }
  return table;
}

void WriteFileTable(const FileTable& files, JsonWriter& json) {
  json.BeginObject();
  for (const auto& [path, record] : files) {
    json.Key(path);
    json.BeginObject();
    json.Key("size");
    json.Uint(record.size);
    json.Key("sha256");
    json.String(record.sha256);
    json.EndObject();
  }
  json.EndObject();
}

Manifest ParseManifest(std::string_view text, const std::string& name) {
  const Json document = ParseJson(text, name, ErrorCode::kManifestCorrupt);
  const JsonReader root(document, name, ErrorCode::kManifestCorrupt);
  Manifest manifest;
  manifest.magic = root.At("magic").String();
  manifest.version_major = root.At("versionMajor").Int();
  manifest.version_minor = root.At("versionMinor").Int();
  ParseFlags(root.At("flags"), manifest);
  manifest.model_id = root.At("modelID").String();
  if (manifest.model_id.empty()) root.At("modelID").FailHere("expected a model identity");
  if (root.Has("sourceSnapshotHash")) {
    manifest.source_snapshot_hash = root.At("sourceSnapshotHash").String();
  }
  if (root.Has("quant")) manifest.quant = ParseQuant(root.At("quant"));
  if (root.Has("flashHead")) manifest.flash_head = ParseFlashHead(root.At("flashHead"));
  manifest.files = ParseFileTable(root.At("files"), /*allow_manifest=*/false);
  manifest.experts_per_layer = root.At("expertsPerLayer").Uint();
  manifest.num_layers = root.At("numLayers").Int();
  manifest.expert_stride = root.At("expertStride").Uint();
  if (root.Has("bitWidthOverridesHonored")) {
    manifest.bit_width_overrides_honored = root.At("bitWidthOverridesHonored").Int();
  }
  // Last: an unknown family is only worth reporting in a manifest that is otherwise readable.
  ParsedArch arch = ParseArch(root.At("arch"));
  manifest.arch = std::move(arch.config);
  manifest.omitted_arch_fields = std::move(arch.omitted);
  return manifest;
}

std::string ManifestToJson(const Manifest& manifest) {
  std::string text;
  JsonWriter json([&text](std::string_view piece) { text += piece; });
  json.BeginObject();
  json.Key("magic");
  json.String(manifest.magic);
  json.Key("versionMajor");
  json.Int(manifest.version_major);
  json.Key("versionMinor");
  json.Int(manifest.version_minor);
  json.Key("flags");
  json.BeginObject();
  for (const FlagField& field : kFlags) {
    json.Key(field.name);
    json.Bool(manifest.flags.*field.member);
  }
  json.EndObject();
  json.Key("modelID");
  json.String(manifest.model_id);
  if (manifest.source_snapshot_hash) {
    json.Key("sourceSnapshotHash");
    json.String(*manifest.source_snapshot_hash);
  }
  json.Key("numLayers");
  json.Int(manifest.num_layers);
  json.Key("expertsPerLayer");
  json.Uint(manifest.experts_per_layer);
  json.Key("expertStride");
  json.Uint(manifest.expert_stride);
  if (manifest.bit_width_overrides_honored) {
    json.Key("bitWidthOverridesHonored");
    json.Int(*manifest.bit_width_overrides_honored);
  }
  json.Key("arch");
  WriteArch(manifest.arch, json);
  if (manifest.quant) {
    json.Key("quant");
    WriteQuant(*manifest.quant, json);
  }
  if (manifest.flash_head) {
    json.Key("flashHead");
    WriteFlashHead(*manifest.flash_head, json);
  }
  json.Key("files");
  WriteFileTable(manifest.files, json);
  json.EndObject();
  json.Finish();
  return text;
}

void CheckManifestIdentity(const Manifest& manifest, const std::string& name) {
  if (manifest.magic != "GTURBO") {
    Fail(ErrorCode::kNotGturbo, "{}: the magic is '{}', not 'GTURBO'", name, manifest.magic);
  }
  if (manifest.version_major != 1 || manifest.version_minor < 0) {
    Fail(ErrorCode::kUnsupportedVersion,
         "{}: format version {}.{} is not supported, only 1.x; another tool or a newer version of "
         "this one wrote it",
         name, manifest.version_major, manifest.version_minor);
  }
  if (!manifest.unknown_flag.empty()) {
    Fail(ErrorCode::kUnknownFlag,
         "{}: $.flags.{} is not known here: a newer tool wrote this directory and it must not be "
         "read without understanding that flag",
         name, manifest.unknown_flag);
  }
  if (manifest.flags.turbo_quant_kv) {
    Fail(ErrorCode::kRemovedFeature,
         "{}: $.flags.turboQuantKV is set, but the packed KV format was removed", name);
  }
}

void CheckManifestArch(const Manifest& manifest, const ArchConfig& expected,
                       const std::string& name) {
  CheckArch({manifest.arch, manifest.omitted_arch_fields}, expected, name);
  const auto require = [&](const char* field, uint64_t found, int64_t needed) {
    if (found == static_cast<uint64_t>(needed)) return;
    Fail(ErrorCode::kArchMismatch, "{}: $.{} is {}, but $.arch says {}", name, field, found,
         needed);
  };
  require("numLayers", static_cast<uint64_t>(manifest.num_layers), manifest.arch.num_layers);
  require("expertsPerLayer", manifest.experts_per_layer, manifest.arch.num_experts);
}

void CheckManifestStructure(const Manifest& manifest, bool quant_required,
                            const std::string& name) {
  if (quant_required && !manifest.quant) {
    Fail(ErrorCode::kQuantMissing, "{}: a model of this size needs a 'quant' block", name);
  }
  if (manifest.quant) CheckQuant(*manifest.quant, manifest.arch.family, name);
  if (manifest.flash_head) CheckFlashHead(*manifest.flash_head, manifest.arch, name);
  if (manifest.expert_stride % kGturboPageBytes != 0 ||
      (manifest.expert_stride == 0) != (manifest.experts_per_layer == 0)) {
    Fail(ErrorCode::kStrideMisaligned, "{}: expertStride is {}, expected {}", name,
         manifest.expert_stride,
         manifest.experts_per_layer == 0 ? "0, as there are no routed experts"
                                         : "a positive multiple of 16384");
  }
  for (const std::string_view file : {kWeightsFile, kLayoutFile}) {
    if (!manifest.files.contains(file)) {
      Fail(ErrorCode::kMissingFile, "{}: $.files does not list {}", name, file);
    }
  }
  for (int64_t layer = 0; layer < manifest.num_layers; ++layer) {
    if (manifest.HasRoutedExperts(layer) && !ListsLayer(manifest, layer)) {
      Fail(ErrorCode::kMissingFile, "{}: $.files does not list {}/{}", name, kExpertsDirectory,
           LayerFileName(layer));
    }
  }
}

}  // namespace mference
