#include "format/toy_directory.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/sha256.h"
#include "format/receipt.h"

namespace mference {

ScratchDirectory::ScratchDirectory() {
  std::string pattern = (std::filesystem::path(testing::TempDir()) / "format_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "cannot create " << pattern;
  path_ = pattern;
}
ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void WriteAll(const std::filesystem::path& path, std::string_view content) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

std::string ExpectError(ErrorCode code, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_STREQ(ErrorCodeName(error.code()), ErrorCodeName(code)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown, expected " << ErrorCodeName(code);
  return "";
}

ArchConfig ToyArch() {
  ArchConfig arch;
  arch.hidden_size = 64;
  arch.ffn_intermediate = 128;
  arch.moe_intermediate_size = 64;
  arch.num_heads = 4;
  arch.num_kv_heads = 2;
  arch.num_full_kv_heads = 1;
  arch.head_dim = 16;
  arch.full_head_dim = 32;
  arch.vocab_size = 128;
  arch.sliding_window = 128;
  arch.final_logit_softcap = 30;
  arch.rope_theta = 10000;
  arch.full_rope_theta = 1000000;
  arch.partial_rotary_factor = 0.25;
  arch.num_layers = 1;
  arch.num_experts = 2;
  arch.top_k_experts = 1;
  arch.tie_word_embeddings = true;
  arch.attention_k_eq_v = true;
  arch.hidden_activation = "gelu_pytorch_tanh";
  arch.layer_kinds = {LayerKind::kSlidingWindow};
  return arch;
}

ResidentIndex ToyIndex() {
  const auto sized = [](uint64_t bytes) { return FileRange{0, bytes}; };
  return PlanResidentIndex({
      {"language_model.model.embed_tokens.weight",
       DType::kU32,
       {128, 64, 0, 0},
       sized(4096),
       sized(256),
       sized(256)},
      {"language_model.model.layers.0.input_layernorm.weight",
       DType::kBf16,
       {64, 0, 0, 0},
       sized(128),
       {},
       {}},
      {"language_model.model.layers.0.layer_scalar", DType::kBf16, {1, 0, 0, 0}, sized(2), {}, {}},
      {"language_model.model.norm.weight", DType::kBf16, {64, 0, 0, 0}, sized(128), {}, {}},
  });
}

Layout ToyLayout() {
  Layout layout;
  layout.expert_stride = 16384;
  layout.experts_per_layer = 2;
  LayerLayout layer;
  layer.file = LayerFileName(0);
  layer.expert_offsets = {0, 16384};
  for (ExpertMatrix* matrix : {&layer.blob.gate, &layer.blob.up, &layer.blob.down}) {
    matrix->rows = 64;
    matrix->columns = 64;
    matrix->bits = 4;
    matrix->group_size = 64;
  }
  EXPECT_EQ(PackExpertBlob(layer.blob), 6912U);
  layout.layers.push_back(layer);
  return layout;
}

std::string ToyWeights() {
  const ResidentIndex index = ToyIndex();
  const std::vector<std::byte> region = SerializeResidentIndex(index);
  std::string file(reinterpret_cast<const char*>(region.data()), region.size());
  for (uint64_t i = 0; i < index.resident_bytes; ++i) {
    file += static_cast<char>((7 * i + 3) % 256);
  }
  return file;
}

std::string ToyLayerFile() {
  std::string file(32768, '\0');
  for (size_t expert = 0; expert < 2; ++expert) {
    for (size_t i = 0; i < 6912; ++i) {
      file[expert * 16384 + i] = static_cast<char>((13 * i + 5 * expert + 1) % 256);
    }
  }
  return file;
}

ExpectedModel ResolveToy(const Manifest&, std::string_view) { return {ToyArch(), false}; }

ToyDirectory::ToyDirectory() : path_(scratch_.path() / "toy.gturbo") {
  std::string layout;
  WriteLayout(ToyLayout(), [&layout](std::string_view piece) { layout += piece; });
  Manifest manifest;
  manifest.model_id = "toy/one-layer";
  manifest.source_snapshot_hash = "sha256:" + std::string(64, '0');
  manifest.arch = ToyArch();
  manifest.quant =
      QuantConfig{AffineSlot(4), AffineSlot(4), AffineSlot(8), AffineSlot(4), AffineSlot(4)};
  manifest.experts_per_layer = 2;
  manifest.num_layers = 1;
  manifest.expert_stride = 16384;
  manifest.bit_width_overrides_honored = 1;
  const std::pair<std::string, std::string> files[] = {
      {"model_weights.bin", ToyWeights()},
      {"packed_experts/layer_00.bin", ToyLayerFile()},
      {"packed_experts/layout.json", layout},
      {"tokenizer/config.json", "{\"model_type\": \"toy\"}"},
      {"tokenizer/tokenizer.json", "{}"},
      {"tokenizer/tokenizer_config.json", "{}"},
  };
  for (const auto& [name, content] : files) {
    WriteAll(File(name), content);
    manifest.files[name] = {content.size(), Sha256Hex(content)};
  }
  WriteAll(File("manifest.json"), ManifestToJson(manifest));
}

void ToyDirectory::EditManifest(const std::function<void(Json&)>& edit) {
  Json manifest = Json::parse(ReadAll(File("manifest.json")));
  edit(manifest);
  WriteAll(File("manifest.json"), manifest.dump());
}

void ToyDirectory::ReplaceFile(std::string_view relative, std::string_view content) {
  WriteAll(File(relative), content);
  EditManifest([&](Json& manifest) {
    manifest["files"][std::string(relative)] = {{"size", content.size()},
                                                {"sha256", Sha256Hex(content)}};
  });
}

void ToyDirectory::EditLayout(const std::function<void(Json&)>& edit) {
  Json layout = Json::parse(ReadAll(File("packed_experts/layout.json")));
  edit(layout);
  ReplaceFile("packed_experts/layout.json", layout.dump());
}

void ToyDirectory::PatchFile(std::string_view relative, size_t offset, std::string_view bytes) {
  std::string content = ReadAll(File(relative));
  content.replace(offset, bytes.size(), bytes);
  ReplaceFile(relative, content);
}

void ToyDirectory::FlipByte(std::string_view relative, size_t offset) {
  std::string content = ReadAll(File(relative));
  content[offset] = static_cast<char>(content[offset] ^ 1);
  WriteAll(File(relative), content);
}

void ToyDirectory::WriteReceipt() const {
  const std::string text = ReadAll(File("manifest.json"));
  const Manifest manifest = ParseManifest(text, "manifest.json");
  Receipt receipt = MakeReceipt(manifest, text, path_, kInstallToolVersion, 1786701600);
  receipt.source_repo_id = "toy/source";
  receipt.source_revision = std::string(40, 'a');
  WriteAll(File("verified-install.json"), ReceiptToJson(receipt));
}

void ToyDirectory::EditReceipt(const std::function<void(Json&)>& edit) const {
  Json receipt = Json::parse(ReadAll(File("verified-install.json")));
  edit(receipt);
  WriteAll(File("verified-install.json"), receipt.dump());
}

ModelDirectory ToyDirectory::Open(VerifyPolicy policy, bool defer) const {
  OpenOptions options;
  options.policy = policy;
  options.resolve = ResolveToy;
  options.defer_hashing = defer;
  return ModelDirectory::Open(path_, options);
}

}  // namespace mference
