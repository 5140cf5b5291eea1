#include "install/test_support.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "base/json.h"
#include "format/safetensors_writer.h"

namespace mference::testing {

TempDirectory::TempDirectory() {
  // In memory where that is possible: most of these tests flush a lot.
  const std::filesystem::path memory = "/dev/shm";
  const bool in_memory = access(memory.c_str(), W_OK) == 0;
  std::string name =
      ((in_memory ? memory : std::filesystem::temp_directory_path()) / "mference-test-XXXXXX")
          .string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = std::filesystem::canonical(name);
}

TempDirectory::~TempDirectory() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

std::filesystem::path GoldenSnapshot(std::string_view folder) {
  return std::filesystem::path(MFERENCE_TEST_DATA) / "goldens" / folder / "snapshot";
}

std::vector<std::string> GoldenFolders() {
  return {"gemma4", "qwen3_5_moe", "deepseek_v4", "inkling", "maple"};
}

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void WriteAll(const std::filesystem::path& path, std::string_view content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  if (!file) throw std::runtime_error("cannot write " + path.string());
}

std::map<std::string, std::string> ReadTree(const std::filesystem::path& directory) {
  std::map<std::string, std::string> tree;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    tree.emplace(entry.path().lexically_relative(directory).string(), ReadAll(entry.path()));
  }
  return tree;
}

void WriteMicroSnapshot(const std::filesystem::path& directory) {
  constexpr uint64_t kColumns = 64;
  std::filesystem::create_directories(directory);
  std::vector<SafetensorsSpec> specs;
  const auto ternary = [&](const std::string& module, std::vector<uint64_t> rows) {
    specs.push_back({.name = module + ".row_alpha", .dtype = DType::kBf16, .shape = rows});
    rows.push_back(kColumns / 16);
    specs.push_back({.name = module + ".weight", .dtype = DType::kU32, .shape = rows});
  };
  const auto plain = [&](const std::string& name, std::vector<uint64_t> shape) {
    specs.push_back({.name = name, .dtype = DType::kBf16, .shape = std::move(shape)});
  };
  for (const char* module : {"lm_head", "model.word_embeddings"}) {
    specs.push_back({.name = std::string(module) + ".weight",
                     .dtype = DType::kU32,
                     .shape = {kColumns, kColumns / 8}});
    plain(std::string(module) + ".scales", {kColumns, 1});
    plain(std::string(module) + ".biases", {kColumns, 1});
  }
  for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
    for (const char* matrix : {"q", "k", "v", "o"}) {
      ternary(fmt::format("{}self_attn.{}_proj", layer, matrix), {kColumns});
    }
    for (const char* matrix : {"gate", "up", "down"}) {
      ternary(fmt::format("{}mlp.switch_mlp.{}_proj", layer, matrix), {2, kColumns});
    }
    plain(fmt::format("{}mlp.gate.weight", layer), {2, kColumns});
    for (const char* norm :
         {"input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm"}) {
      plain(fmt::format("{}{}.weight", layer, norm), {kColumns});
    }
  }
  plain("model.norm.weight", {kColumns});

  Json index;
  SafetensorsWriter shard(directory / "model.safetensors", specs);
  for (size_t i = 0; i < specs.size(); ++i) {
    uint64_t bytes = ElementBytes(specs[i].dtype);
    for (const uint64_t size : specs[i].shape) bytes *= size;
    std::vector<std::byte> data(bytes);
    // Distinct everywhere, and never the two-bit code 3.
    for (size_t k = 0; k < bytes; ++k) data[k] = static_cast<std::byte>((i * 31 + k * 7) & 0xAA);
    shard.Append(i, data);
    index["weight_map"][specs[i].name] = "model.safetensors";
  }
  shard.Finish();
  WriteAll(directory / "model.safetensors.index.json", index.dump());

  Json config =
      ParseJson(ReadAll(GoldenSnapshot("maple") / "config.json"), "config", ErrorCode::kInternal);
  config["num_hidden_layers"] = 2;
  config["layer_types"] = {"sliding_attention", "full_attention"};
  config["num_experts"] = 2;
  config["num_experts_per_tok"] = 1;
  config["num_attention_heads"] = 1;
  config["num_key_value_heads"] = 1;
  for (const char* size : {"hidden_size", "head_dim", "moe_intermediate_size", "vocab_size",
                           "moe_shared_expert_intermediate_size"}) {
    config[size] = kColumns;
  }
  WriteAll(directory / "config.json", config.dump());
  WriteAll(directory / "tokenizer.json", "{}");
  WriteAll(directory / "tokenizer_config.json", "{}");
}

InstallOptions TestOptions(const std::filesystem::path& output) {
  InstallOptions options;
  options.output = output;
  options.reserve_bytes = 0;
  options.now = [] { return std::time_t{1'786'702'000}; };
  return options;
}

}  // namespace mference::testing
