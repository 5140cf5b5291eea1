// Installs every family's tiny checkpoint and the demo, and compares each tensor with its source.
#include "install/local_install.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <fstream>

#include "base/float16.h"
#include "base/json.h"
#include "format/model_directory.h"
#include "format/receipt.h"
#include "format/safetensors.h"
#include "format/verify_directory.h"
#include "install/install_paths.h"
#include "install/local_source.h"
#include "install/test_support.h"

namespace mference {
namespace {

using testing::GoldenSnapshot;
using ::testing::HasSubstr;
using testing::ReadAll;
using testing::TempDirectory;
using testing::TestOptions;

// A source snapshot opened with the format's reader, which the installer does not use for data.
class Source {
 public:
  explicit Source(const std::filesystem::path& directory) {
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      if (entry.path().extension() == ".safetensors") shards_.emplace_back(entry.path());
    }
  }
  bool Has(const std::string& name) const { return FindShard(name) != nullptr; }
  std::span<const std::byte> Bytes(const std::string& name) const {
    const SafetensorsFile* shard = FindShard(name);
    if (shard == nullptr) throw std::runtime_error("no source tensor " + name);
    return shard->Bytes(shard->Tensor(name));
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const SafetensorsFile& shard : shards_) {
      for (const SafetensorsTensor& tensor : shard.header().tensors()) names.push_back(tensor.name);
    }
    return names;
  }

 private:
  const SafetensorsFile* FindShard(const std::string& name) const {
    for (const SafetensorsFile& shard : shards_) {
      if (shard.header().Find(name) != nullptr) return &shard;
    }
    return nullptr;
  }
  std::vector<SafetensorsFile> shards_;
};

bool Same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

float Bf16At(std::span<const std::byte> bytes, size_t index) {
  uint16_t bits = 0;
  std::memcpy(&bits, bytes.data() + 2 * index, 2);
  return FloatFromBf16(bits);
}

unsigned CodeAt(std::span<const std::byte> bytes, size_t index, unsigned bits) {
  const auto byte = std::to_integer<unsigned>(bytes[index * bits / 8]);
  return byte >> (index * bits % 8) & ((1u << bits) - 1);
}

// A ternary source matrix and its affine install: the same value everywhere.
void ExpectTernary(std::span<const std::byte> codes, std::span<const std::byte> alpha,
                   std::span<const std::byte> weights, std::span<const std::byte> scales,
                   std::span<const std::byte> biases, unsigned bits, const std::string& name) {
  const size_t elements = codes.size() * 4;
  const size_t columns = elements / (alpha.size() / 2);
  ASSERT_EQ(weights.size(), elements * bits / 8) << name;
  ASSERT_EQ(scales.size(), elements / 64 * 2) << name;
  for (size_t i = 0; i < elements; ++i) {
    const float expected =
        Bf16At(alpha, i / columns) * (static_cast<float>(CodeAt(codes, i, 2)) - 1.0f);
    const float found = Bf16At(scales, i / 64) * static_cast<float>(CodeAt(weights, i, bits)) +
                        Bf16At(biases, i / 64);
    ASSERT_EQ(found, expected) << name << " element " << i;
  }
}

void ExpectResidents(const ModelDirectory& model, const Source& source) {
  for (const ResidentTensor& tensor : model.resident_index().tensors) {
    const std::string& name = tensor.name;
    const std::string module = name.substr(0, name.rfind(".weight"));
    if (tensor.scales.bytes == 0) {
      EXPECT_TRUE(Same(model.Bytes(tensor.weight), source.Bytes(name))) << name;
    } else if (source.Has(module + ".row_alpha")) {
      ExpectTernary(source.Bytes(name), source.Bytes(module + ".row_alpha"),
                    model.Bytes(tensor.weight), model.Bytes(tensor.scales),
                    model.Bytes(tensor.biases), 4, name);
    } else {
      EXPECT_TRUE(Same(model.Bytes(tensor.weight), source.Bytes(name))) << name;
      EXPECT_TRUE(Same(model.Bytes(tensor.scales), source.Bytes(module + ".scales"))) << name;
      EXPECT_TRUE(Same(model.Bytes(tensor.biases), source.Bytes(module + ".biases"))) << name;
    }
  }
}

void ExpectExperts(const ModelDirectory& model, const Source& source,
                   const std::string& routed_prefix) {
  const Layout& layout = model.layout();
  for (size_t layer = 0; layer < layout.layers.size(); ++layer) {
    const LayerLayout& planned = layout.layers[layer];
    if (planned.expert_offsets.empty()) continue;
    const std::string file = ReadAll(model.path() / layout.LayerPath(static_cast<int64_t>(layer)));
    const auto bytes = std::as_bytes(std::span(file));
    const std::pair<const char*, const ExpertMatrix*> matrices[] = {
        {"gate", &planned.blob.gate}, {"up", &planned.blob.up}, {"down", &planned.blob.down}};
    for (const auto& [matrix_name, matrix] : matrices) {
      const std::string module =
          fmt::format(fmt::runtime(routed_prefix), layer) + matrix_name + "_proj";
      for (size_t expert = 0; expert < planned.expert_offsets.size(); ++expert) {
        const auto blob = bytes.subspan(planned.expert_offsets[expert], layout.expert_stride);
        const auto installed = [&](const BlobSlice& slice) {
          return blob.subspan(slice.offset, slice.bytes);
        };
        const auto original = [&](const char* suffix) {
          const auto all = source.Bytes(module + suffix);
          const size_t part = all.size() / planned.expert_offsets.size();
          return all.subspan(expert * part, part);
        };
        const std::string name = fmt::format("{} expert {}", module, expert);
        ASSERT_TRUE(Same(installed(matrix->weights), original(".weight"))) << name;
        if (source.Has(module + ".row_alpha")) {
          ExpectTernary(original(".weight"), original(".row_alpha"), installed(matrix->weights),
                        installed(matrix->scales), installed(matrix->biases), 2, name);
          continue;
        }
        ASSERT_TRUE(Same(installed(matrix->scales), original(".scales"))) << name;
        ASSERT_TRUE(Same(installed(matrix->biases), original(".biases"))) << name;
      }
    }
  }
}

struct Family {
  std::string folder;
  std::string routed_prefix;  // {}: the layer
  size_t excluded = 0;
};

class EveryFamily : public ::testing::TestWithParam<Family> {};

TEST_P(EveryFamily, InstallsByteForByte) {
  const std::filesystem::path snapshot = GetParam().folder == "demo"
                                             ? std::filesystem::path(MFERENCE_DEMO_SNAPSHOT)
                                             : GoldenSnapshot(GetParam().folder);
  const TempDirectory temp;
  InstallOptions options = TestOptions(temp / "model.gturbo");
  options.chunk_bytes = 100'000;  // many ranges, cut everywhere
  const InstallResult result = InstallLocal(snapshot, "tiny", options);
  EXPECT_EQ(result.directory, temp / "model.gturbo");
  EXPECT_EQ(result.audit.excluded_tensors.size(), GetParam().excluded);
  EXPECT_GT(result.audit.range_count, 5u);

  VerifyOptions verify;
  verify.resolve = ResolveModel;
  verify.write_receipt = false;
  const VerifyReport report = VerifyDirectory(result.directory, verify);
  EXPECT_TRUE(report.ok());
  EXPECT_TRUE(report.unexpected.empty());

  const ModelDirectory model = ModelDirectory::Open(
      result.directory, {.policy = VerifyPolicy::kTrustedReceipt, .resolve = ResolveModel});
  EXPECT_EQ(model.manifest().model_id, "unknown/snapshot");
  const Source source(snapshot);
  ExpectResidents(model, source);
  ExpectExperts(model, source, GetParam().routed_prefix);
  // Every source tensor went somewhere or was left out by name.
  size_t stored = 0;
  for (const ResidentTensor& tensor : model.resident_index().tensors) {
    const std::string module = tensor.name.substr(0, tensor.name.rfind(".weight"));
    stored += 1 + (tensor.scales.bytes > 0 ? (source.Has(module + ".row_alpha") ? 1 : 2) : 0);
  }
  for (const std::string& name : source.Names()) {
    stored += name.find(".experts.") != std::string::npos ||
              name.find(".switch_mlp.") != std::string::npos;
  }
  EXPECT_EQ(stored + GetParam().excluded, source.Names().size());

  // Sidecars are byte copies.
  EXPECT_EQ(ReadAll(result.directory / "tokenizer/config.json"), ReadAll(snapshot / "config.json"));
  EXPECT_EQ(ReadAll(result.directory / "tokenizer/tokenizer.json"),
            ReadAll(snapshot / "tokenizer.json"));
  // Only the directory and the siblings that are left on purpose.
  for (const auto& entry : std::filesystem::directory_iterator(temp.path())) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(name == "model.gturbo" || name == "model.gturbo.install.lock" ||
                name == "model.gturbo.ranges.json")
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Tiny, EveryFamily,
    ::testing::Values(Family{"gemma4", "language_model.model.layers.{}.experts.switch_glu.", 4},
                      Family{"qwen3_5_moe", "language_model.model.layers.{}.mlp.switch_mlp.", 1},
                      Family{"deepseek_v4", "model.layers.{}.ffn.switch_mlp.", 0},
                      Family{"inkling", "model.llm.layers.{}.mlp.experts.", 2},
                      Family{"maple", "model.layers.{}.mlp.switch_mlp.", 0},
                      Family{"demo", "language_model.model.layers.{}.experts.switch_glu.", 0}),
    [](const auto& instance) { return instance.param.folder; });

TEST(LocalInstall, SameBytesWhateverTheChunkAndTheThreads) {
  const TempDirectory temp;
  InstallOptions first = TestOptions(temp / "a.gturbo");
  first.chunk_bytes = 4099;
  first.background = false;
  InstallOptions second = TestOptions(temp / "b.gturbo");
  InstallLocal(GoldenSnapshot("deepseek_v4"), "a", first);
  InstallLocal(GoldenSnapshot("deepseek_v4"), "b", second);
  auto a = testing::ReadTree(temp / "a.gturbo");
  auto b = testing::ReadTree(temp / "b.gturbo");
  a.erase("verified-install.json");  // bound to its path
  b.erase("verified-install.json");
  EXPECT_EQ(a, b);
}

TEST(LocalInstall, ManifestSaysWhatWasInstalled) {
  const TempDirectory temp;
  InstallLocal(GoldenSnapshot("gemma4"), "tiny", TestOptions(temp / "m.gturbo"));
  const Manifest manifest = ParseManifest(ReadAll(temp / "m.gturbo/manifest.json"), "manifest");
  EXPECT_EQ(manifest.num_layers, 6);
  EXPECT_EQ(manifest.experts_per_layer, 16u);
  // gate, up [64, 128] and down [128, 64] at 4 bits in groups of 64: 3 x 4,608 bytes, one page.
  EXPECT_EQ(manifest.expert_stride, 16384u);
  EXPECT_EQ(manifest.bit_width_overrides_honored, 6);
  ASSERT_TRUE(manifest.quant);
  EXPECT_EQ(manifest.quant->router.weight_bits, 8);
  EXPECT_EQ(manifest.quant->shared_expert.weight_bits, 4);
  EXPECT_EQ(manifest.arch.sliding_window, 16);
  const Receipt receipt = ParseReceipt(ReadAll(temp / "m.gturbo/verified-install.json"), "receipt");
  EXPECT_EQ(receipt.source_repo_id, "local/snapshot");
  EXPECT_EQ(receipt.tool_version, "MferenceRepack");
}

// A copy of a golden snapshot that a test may damage.
std::filesystem::path CopySnapshot(const TempDirectory& temp, const std::string& folder) {
  const std::filesystem::path copy = temp / "snapshot";
  std::filesystem::copy(GoldenSnapshot(folder), copy);
  for (const auto& entry : std::filesystem::directory_iterator(copy)) {
    std::filesystem::permissions(entry, std::filesystem::perms::owner_write,
                                 std::filesystem::perm_options::add);
  }
  return copy;
}

void ReplaceInFile(const std::filesystem::path& path, const std::string& from,
                   const std::string& to) {
  std::string text = ReadAll(path);
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  testing::WriteAll(path, text);
}

struct Damage {
  std::string name;
  std::string folder;
  std::string file;
  std::string from;
  std::string to;
  ErrorCode code;
  std::string message;
};

class DamagedSnapshot : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedSnapshot, IsRefusedAndLeavesNothing) {
  const Damage& damage = GetParam();
  const TempDirectory temp;
  const std::filesystem::path snapshot = CopySnapshot(temp, damage.folder);
  if (damage.from.empty()) {
    std::filesystem::remove(snapshot / damage.file);
  } else {
    ReplaceInFile(snapshot / damage.file, damage.from, damage.to);
  }
  try {
    InstallLocal(snapshot, "tiny", TestOptions(temp / "m.gturbo"));
    FAIL() << "installed";
  } catch (const Error& error) {
    EXPECT_EQ(ErrorCodeName(error.code()), std::string(ErrorCodeName(damage.code))) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(damage.message));
  }
  EXPECT_FALSE(std::filesystem::exists(temp / "m.gturbo"));
  EXPECT_FALSE(std::filesystem::exists(temp / "m.gturbo.partial"));
  EXPECT_FALSE(std::filesystem::exists(temp / "m.gturbo.resume.json"));
}

INSTANTIATE_TEST_SUITE_P(
    All, DamagedSnapshot,
    ::testing::Values(
        Damage{"Family", "gemma4", "config.json", "\"model_type\": \"gemma4\"",
               "\"model_type\": \"gemma9\"", ErrorCode::kUnknownFamily, "gemma9"},
        Damage{"NoIndex", "gemma4", "model.safetensors.index.json", "", "",
               ErrorCode::kSourceInvalid, "not a checkpoint"},
        Damage{"NoConfig", "gemma4", "config.json", "", "", ErrorCode::kSourceInvalid,
               "no config.json"},
        Damage{"NoShard", "gemma4", "model-00002-of-00002.safetensors", "", "",
               ErrorCode::kNotFound, "model-00002-of-00002.safetensors"},
        Damage{"NoTokenizer", "gemma4", "tokenizer.json", "", "", ErrorCode::kSourceInvalid,
               "no tokenizer.json"},
        Damage{"Activation", "gemma4", "config.json", "gelu_pytorch_tanh", "gelu",
               ErrorCode::kSourceInvalid, "hidden_activation"},
        Damage{"LayerType", "gemma4", "config.json", "\"full_attention\"\n", "\"no_attention\"\n",
               ErrorCode::kSourceInvalid, "no_attention"},
        Damage{"Mode", "gemma4", "config.json", "\"mode\": \"affine\"", "\"mode\": \"mxfp4\"",
               ErrorCode::kSourceInvalid, "mxfp4"},
        Damage{"Width", "gemma4", "config.json", "\"intermediate_size\": 192",
               "\"intermediate_size\": 256", ErrorCode::kSourceInvalid, "mlp.gate_proj"},
        Damage{"RouterBits", "gemma4", "config.json", "\"bits\": 8", "\"bits\": 4",
               ErrorCode::kSourceInvalid, "router.proj.weight"},
        Damage{"Prefix", "gemma4", "model.safetensors.index.json", "vision_tower.", "visual_tower.",
               ErrorCode::kSourceInvalid, "visual_tower."},
        Damage{"Missing", "gemma4", "model.safetensors.index.json",
               "\"language_model.model.layers.3.layer_scalar\"",
               "\"vision_tower.model.layers.3.layer_scalar\"", ErrorCode::kSourceInvalid,
               "vision_tower.model.layers.3.layer_scalar"},
        Damage{"HeaderLength", "maple", "model.safetensors", std::string("{\"__meta"),
               std::string("#\"__meta"), ErrorCode::kSourceInvalid, "model.safetensors"},
        Damage{"Inkling", "inkling", "config.json", "\"use_sconv\": true", "\"use_sconv\": false",
               ErrorCode::kSourceInvalid, "use_sconv"},
        Damage{"Ratios", "deepseek_v4", "config.json", "\"compress_ratios\": [\n    0",
               "\"compress_ratios\": [\n    5", ErrorCode::kSourceInvalid, "compress_ratios[0]"},
        Damage{"Rope", "deepseek_v4", "config.json", "\"yarn\"", "\"linear\"",
               ErrorCode::kSourceInvalid, "rope_scaling"},
        Damage{"QkNorm", "maple", "config.json", "\"use_qk_norm\": true", "\"use_qk_norm\": false",
               ErrorCode::kSourceInvalid, "use_qk_norm"},
        Damage{"Gate", "qwen3_5_moe", "config.json", "\"attn_output_gate\": true",
               "\"attn_output_gate\": false", ErrorCode::kSourceInvalid, "attn_output_gate"}),
    [](const auto& instance) { return instance.param.name; });

TEST(LocalInstall, RefusesTernaryCodeThree) {
  const TempDirectory temp;
  const std::filesystem::path snapshot = CopySnapshot(temp, "maple");
  const SafetensorsFile shard(snapshot / "model.safetensors");
  const uint64_t at = shard.Tensor("model.layers.5.mlp.switch_mlp.up_proj.weight").offset + 1234;
  std::string bytes = ReadAll(snapshot / "model.safetensors");
  bytes[at] = static_cast<char>(0xC0);
  testing::WriteAll(snapshot / "model.safetensors", bytes);
  try {
    InstallLocal(snapshot, "tiny", TestOptions(temp / "m.gturbo"));
    FAIL() << "installed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kSourceInvalid);
    EXPECT_THAT(error.what(), HasSubstr("ternary code 3"));
  }
  EXPECT_FALSE(std::filesystem::exists(temp / "m.gturbo"));
}

TEST(LocalInstall, APinnedNameNeedsThePinnedCheckpoint) {
  const TempDirectory temp;
  try {
    InstallLocal(GoldenSnapshot("gemma4"), "gemma4", TestOptions(temp / "m.gturbo"));
    FAIL() << "installed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kSourceInvalid);
    EXPECT_THAT(error.what(), HasSubstr("bf198c9f5ea6462addca1966e5dd669c407537a876e82cf06db9084c"
                                        "5c850b13"));
  }
}

TEST(LocalInstall, ChecksShardsAgainstTheHubsMetadata) {
  const TempDirectory temp;
  const std::filesystem::path snapshot = CopySnapshot(temp, "maple");
  const std::filesystem::path metadata = snapshot / ".cache/huggingface/download";
  std::filesystem::create_directories(metadata);
  const std::string commit(40, 'c');
  testing::WriteAll(metadata / "model.safetensors.metadata",
                    commit + "\n" + std::string(64, '0') + "\n1786702000.0\n");
  try {
    InstallLocal(snapshot, "tiny", TestOptions(temp / "m.gturbo"));
    FAIL() << "installed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kSourceInvalid);
    EXPECT_THAT(error.what(), HasSubstr("download it again"));
  }
  testing::WriteAll(
      metadata / "model.safetensors.metadata",
      commit + "\n" + Sha256Hex(ReadAll(snapshot / "model.safetensors")) + "\n1786702000.0\n");
  InstallLocal(snapshot, "tiny", TestOptions(temp / "m.gturbo"));
}

TEST(LocalInstall, ASourceThatChangesMeanwhileIsNotMixed) {
  const TempDirectory temp;
  const std::filesystem::path snapshot = temp / "snapshot";
  std::filesystem::copy(GoldenSnapshot("gemma4"), snapshot,
                        std::filesystem::copy_options::recursive);
  std::filesystem::path shard;
  for (const auto& entry : std::filesystem::directory_iterator(snapshot)) {
    if (entry.path().extension() == ".safetensors") shard = entry.path();
  }
  std::filesystem::last_write_time(
      shard, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  InstallOptions options = TestOptions(temp / "m.gturbo");
  options.on_event = [&](const InstallEvent& event) {
    if (event.kind == InstallEvent::Kind::kPhase && event.phase == InstallPhase::kCopying) {
      std::fstream(shard, std::ios::in | std::ios::out | std::ios::binary).seekp(-1, std::ios::end)
          << 'x';
    }
  };
  try {
    InstallLocal(snapshot, "tiny", options);
    FAIL() << "installed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kSourceInvalid);
    EXPECT_THAT(error.what(), HasSubstr("changed while it was read"));
  }
  EXPECT_FALSE(std::filesystem::exists(temp / "m.gturbo"));
}

TEST(LocalInstall, DryRunLeavesNothing) {
  const TempDirectory temp;
  InstallOptions options = TestOptions(temp / "m.gturbo");
  options.dry_run = true;
  const InstallResult result = InstallLocal(GoldenSnapshot("gemma4"), "tiny", options);
  EXPECT_GT(result.audit.output_bytes, 0u);
  EXPECT_FALSE(std::filesystem::exists(temp / "m.gturbo"));
  EXPECT_FALSE(std::filesystem::exists(temp / "m.gturbo.partial"));
}

TEST(LocalInstall, ADryRunShowsThePlanOnADiskThatIsTooSmall) {
  const TempDirectory temp;
  InstallOptions options = TestOptions(temp / "m.gturbo");
  options.reserve_bytes = uint64_t{1} << 62;
  options.dry_run = true;
  const InstallResult result = InstallLocal(GoldenSnapshot("gemma4"), "tiny", options);
  EXPECT_GT(result.audit.range_count, 0u);
  EXPECT_EQ(result.audit.disk.missing_bytes, result.audit.output_bytes);
  EXPECT_EQ(result.audit.disk.reserve_bytes, uint64_t{1} << 62);
  EXPECT_FALSE(result.audit.disk.fits());
  try {
    RequireSpace(result.audit.disk, result.directory);
    FAIL() << "fits";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDiskFull);
    EXPECT_THAT(error.what(), HasSubstr("m.gturbo needs "));
  }
}

TEST(LocalInstall, AuditAccountsForEveryByte) {
  const TempDirectory temp;
  InstallOptions options = TestOptions(temp / "m.gturbo");
  options.chunk_bytes = 65536;
  const InstallResult result = InstallLocal(GoldenSnapshot("gemma4"), "tiny", options);
  const Json audit = ParseJson(AuditToJson(result), "audit", ErrorCode::kInternal);
  uint64_t range_bytes = 0;
  for (const Json& range : audit.at("ranges")) {
    range_bytes += range.at("bytes").get<uint64_t>();
    EXPECT_EQ(range.at("destination_digest").get<std::string>().size(), 64u);
    EXPECT_LE(range.at("bytes").get<uint64_t>(), 65536u);
  }
  EXPECT_EQ(range_bytes, audit.at("source_bytes_read").get<uint64_t>());
  EXPECT_EQ(audit.at("tensors_dropped_multimodal").size(), 4u);
  EXPECT_EQ(audit.at("whole_file_heap_buffers"), false);
  EXPECT_EQ(audit.at("largest_scratch_bytes"), 524288);
  EXPECT_EQ(audit.at("output_files").size(), testing::ReadTree(temp / "m.gturbo").size() - 2);
}

}  // namespace
}  // namespace mference
