// The five production checkpoints as headers without data, written down here from the format
// specification's shapes (gturbo-format 3.5) and independently of the code under test.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "fmt/format.h"
#include "install/source.h"

namespace mference::testing {

using Shape = std::vector<uint64_t>;

// A source that has headers and no data.
class HeaderSource final : public SnapshotSource {
 public:
  explicit HeaderSource(std::string config_json, uint64_t shard_bytes = uint64_t{5} << 30)
      : config_json_(std::move(config_json)), shard_bytes_(shard_bytes) {}

  void Add(const std::string& name, const char* dtype, const Shape& shape) {
    uint64_t bytes = std::string_view(dtype) == "BF16"  ? 2
                     : std::string_view(dtype) == "I64" ? 8
                                                        : 4;
    for (const uint64_t size : shape) bytes *= size;
    if (headers_.empty() || (data_bytes_.back() > 0 && data_bytes_.back() + bytes > shard_bytes_)) {
      headers_.emplace_back(Json::object());
      data_bytes_.push_back(0);
    }
    headers_.back()[name] = {{"dtype", dtype},
                             {"shape", shape},
                             {"data_offsets", {data_bytes_.back(), data_bytes_.back() + bytes}}};
    data_bytes_.back() += bytes;
    index_["weight_map"][name] = ShardName(headers_.size() - 1);
  }

  // A packed affine matrix; `shape` is logical.
  void Affine(const std::string& module, Shape shape, uint64_t bits = 4, uint64_t group = 64) {
    Shape packed = shape;
    packed.back() = shape.back() * bits / 32;
    Add(module + ".weight", "U32", packed);
    shape.back() /= group;
    Add(module + ".scales", "BF16", shape);
    Add(module + ".biases", "BF16", shape);
  }
  void Ternary(const std::string& module, Shape shape) {
    Shape packed = shape;
    packed.back() /= 16;
    Add(module + ".weight", "U32", packed);
    shape.pop_back();
    Add(module + ".row_alpha", "BF16", shape);
  }
  void Vector(const std::string& name, uint64_t size) { Add(name, "BF16", {size}); }

  SourceIdentity identity() const override {
    return {
        .repository = "test/headers", .requested_revision = "r", .commit = std::string(40, '0')};
  }
  bool is_remote() const override { return false; }
  std::optional<std::string> ReadFile(const std::string& name, uint64_t /*max_bytes*/) override {
    return name == "config.json" ? config_json_ : index_.dump();
  }
  std::unique_ptr<FetchedRange> FetchFile(const std::string& /*name*/, uint64_t /*max*/) override {
    return nullptr;
  }
  bool HasFile(const std::string& /*name*/) override { return true; }
  ShardInfo Examine(const std::string& shard) override {
    const size_t i = ShardNumber(shard);
    return {.bytes = 8 + Header(i).size() + data_bytes_[i], .sha256 = ""};
  }
  std::string ReadBytes(const std::string& shard, uint64_t offset, uint64_t bytes) override {
    const std::string& header = Header(ShardNumber(shard));
    std::string file(8, '\0');
    for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i));
    return (file + header).substr(offset, bytes);
  }
  void StreamBytes(const std::string& /*shard*/, uint64_t /*offset*/, uint64_t /*bytes*/,
                   const std::function<void(std::span<const std::byte>)>& /*sink*/) override {}
  std::unique_ptr<FetchedRange> Fetch(const RangeRequest& /*request*/) override { return nullptr; }

  // Writes the checkpoint out with pseudo-random data, and the sidecars that an install requires.
  void WriteTo(const std::filesystem::path& directory);

 private:
  static std::string ShardName(size_t i) { return fmt::format("model-{:05d}.safetensors", i); }
  static size_t ShardNumber(const std::string& name) { return std::stoul(name.substr(6, 5)); }
  const std::string& Header(size_t i) {
    std::string& text = header_text_[i];
    if (text.empty()) text = headers_[i].dump();
    return text;
  }

  std::string config_json_;
  uint64_t shard_bytes_;
  Json index_;
  std::vector<Json> headers_;
  std::vector<uint64_t> data_bytes_;
  std::map<size_t, std::string> header_text_;
};

std::unique_ptr<HeaderSource> Gemma4Headers(uint64_t layers = 30);
std::unique_ptr<HeaderSource> Qwen36Headers();
std::unique_ptr<HeaderSource> DeepseekV4Headers();
std::unique_ptr<HeaderSource> InklingHeaders();
std::unique_ptr<HeaderSource> MapleHeaders();

}  // namespace mference::testing
