// Synthetic checkpoints: that they are what the loader and the published sizes say a checkpoint of
// the family is, that their bytes depend on the options alone, and that they compute like a model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include "base/error.h"
#include "engine/loaded_model.h"
#include "install/installer.h"
#include "install/local_source.h"
#include "install/repack_plan.h"
#include "install/snapshot.h"
#include "synth/config_json.h"
#include "synth/snapshot_writer.h"
#include "synth/synthetic_source.h"
#include "synth/tokenizer_json.h"
#include "text/tokenizer/tokenizer_file.h"

namespace mference {
namespace {

namespace fs = std::filesystem;

// Removed with everything in it.
class Scratch {
 public:
  Scratch() {
    static int count = 0;
    path_ = fs::temp_directory_path() / fmt::format("mference_synth_{}_{}", getpid(), count++);
    fs::create_directories(path_);
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

ArchConfig TinyArch(std::string_view family) {
  ArchConfig arch = SyntheticArch(family, family == "gemma4" ? 6 : 4);
  arch.hidden_size = 128;
  arch.ffn_intermediate = 64;
  arch.moe_intermediate_size = 64;
  arch.num_heads = 4;
  arch.num_kv_heads = 2;
  arch.num_full_kv_heads = family == "gemma4" ? 1 : 2;
  arch.head_dim = family == "gemma4" ? 32 : 64;
  arch.full_head_dim = 64;
  arch.vocab_size = kLeastSynthVocabulary;
  arch.num_experts = 32;
  arch.top_k_experts = 4;
  if (family == "gemma4") {
    arch.sliding_window = 16;
  } else {
    arch.attention_scale = 0.125;
    arch.linear_num_k_heads = 2;
    arch.linear_num_v_heads = 4;
    arch.linear_key_head_dim = 32;
    arch.linear_value_head_dim = 32;
  }
  return arch;
}

fs::path InstallTo(const fs::path& output, SnapshotSource& source) {
  InstallOptions options;
  options.output = output;
  options.reserve_bytes = 0;
  return Install(source, options).directory;
}

// Every file but the receipt, which has the time and the place in it.
std::map<std::string, std::string> Payload(const fs::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file() || entry.path().filename() == kReceiptFile) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    files[fs::relative(entry.path(), directory).string()] =
        std::string(std::istreambuf_iterator<char>(file), {});
  }
  return files;
}

std::string WholeShard(SyntheticSource& source, const std::string& shard) {
  return source.ReadBytes(shard, 0, source.Examine(shard).bytes);
}

class SynthOf : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, SynthOf, ::testing::Values("gemma4", "qwen36"),
                         [](const auto& family) { return std::string(family.param); });

TEST_P(SynthOf, ConfigDerivesToTheArchitecture) {
  const std::optional<int64_t> layer_counts[] = {std::nullopt, 1, 7, 100};
  for (const auto& layers : layer_counts) {
    const ArchConfig arch = SyntheticArch(GetParam(), layers);
    EXPECT_EQ(arch.num_layers, layers.value_or(FindPinned(GetParam())->arch().num_layers));
    EXPECT_TRUE(DeriveArch(ParseConfig(SyntheticConfigJson(arch), "config.json"), "config.json") ==
                arch);
  }
}

// The plan of the full-size checkpoint against the published sizes; nothing is written.
TEST_P(SynthOf, FullSizeIsThePublishedSize) {
  SyntheticSource source({.arch = SyntheticArch(GetParam()), .experts_skew = 1});
  const Snapshot snapshot = LoadSnapshot(source, nullptr);
  EXPECT_EQ(snapshot.pinned, nullptr) << "a synthetic checkpoint passes for the published one";
  const RepackPlan plan = PlanRepack(snapshot, kMaxChunkBytes);
  const CanonicalPlan& published = FindPinned(GetParam())->plan;
  EXPECT_EQ(plan.resident_index.tensors.size(), published.resident_entries);
  EXPECT_EQ(plan.resident_index.index_bytes + plan.resident_index.resident_bytes,
            published.weights_file_bytes);
  EXPECT_EQ(plan.layout.expert_stride, published.expert_stride);
  EXPECT_EQ(plan.ranges.output_bytes(), published.weights_file_bytes + published.pool_bytes());
  EXPECT_TRUE(plan.excluded.empty());
  EXPECT_EQ(MakeManifest(snapshot, plan).model_id, kUnpinnedModelId);
}

// Wherever reading begins and ends, the bytes are those of the whole.
TEST_P(SynthOf, BytesDoNotDependOnHowTheyAreCut) {
  SyntheticSource source({.arch = TinyArch(GetParam()), .experts_skew = 0.5});
  for (const std::string& shard : source.shard_names()) {
    const std::string whole = WholeShard(source, shard);
    std::string joined;
    for (uint64_t at = 0, step = 1; at < whole.size(); step = step * 3 % 10007) {
      const uint64_t bytes = std::min<uint64_t>(step, whole.size() - at);
      joined += source.ReadBytes(shard, at, bytes);
      at += bytes;
    }
    EXPECT_TRUE(joined == whole) << shard;
    std::string streamed;
    source.StreamBytes(shard, 5, whole.size() - 5, [&](std::span<const std::byte> tile) {
      streamed.append(reinterpret_cast<const char*>(tile.data()), tile.size());
    });
    EXPECT_TRUE(streamed == whole.substr(5)) << shard;
  }
}

TEST_P(SynthOf, OptionsDecideEveryByte) {
  const auto content = [&](uint64_t seed, double skew) {
    SyntheticSource source({.arch = TinyArch(GetParam()), .seed = seed, .experts_skew = skew});
    return WholeShard(source, source.shard_names()[0]) +
           WholeShard(source, source.shard_names()[1]);
  };
  EXPECT_TRUE(content(1, 0.5) == content(1, 0.5));
  EXPECT_FALSE(content(1, 0.5) == content(2, 0.5));
  EXPECT_FALSE(content(1, 0.5) == content(1, 0));
  const auto commit = [&](uint64_t seed, double skew) {
    return SyntheticSource({.arch = TinyArch(GetParam()), .seed = seed, .experts_skew = skew})
        .identity()
        .commit;
  };
  EXPECT_EQ(commit(1, 0.5), commit(1, 0.5));
  EXPECT_NE(commit(1, 0.5), commit(2, 0.5)) << "an install of one would be resumed with the other";
  EXPECT_NE(commit(1, 0.5), commit(1, 0));
}

TEST_P(SynthOf, InstallsTheSameDirectlyAndThroughFiles) {
  const Scratch scratch;
  SyntheticSource source({.arch = TinyArch(GetParam()), .experts_skew = 1});
  const auto direct = Payload(InstallTo(scratch / "direct.gturbo", source));
  WriteSyntheticSnapshot(source, scratch / "snapshot", {});
  LocalSource local(scratch / "snapshot");
  const auto through_files = Payload(InstallTo(scratch / "files.gturbo", local));
  EXPECT_TRUE(direct == through_files);
  EXPECT_TRUE(direct.contains("manifest.json"));
  EXPECT_TRUE(direct.contains("packed_experts/layer_03.bin"));
}

// Logits of a model's size, which depend on the token and the context.
TEST_P(SynthOf, ComputesLikeAModel) {
  const Scratch scratch;
  for (const double skew : {0.0, 1.0}) {
    SyntheticSource source({.arch = TinyArch(GetParam()), .experts_skew = skew});
    const fs::path model_path =
        InstallTo(scratch / (skew > 0 ? "skewed.gturbo" : "even.gturbo"), source);
    std::vector<std::set<int32_t>> touched(static_cast<size_t>(TinyArch(GetParam()).num_layers));
    LoadOptions options;
    options.path = model_path;
    options.context = 256;
    options.threads = 1;
    options.on_open = [&](int layer, std::span<const int32_t> ids) {
      touched[static_cast<size_t>(layer)].insert(ids.begin(), ids.end());
    };
    const auto model = LoadedModel::Load(options);
    std::vector<int32_t> prompt;
    for (int32_t i = 0; i < 200; ++i) prompt.push_back(500 + i * 89 % 400);
    std::vector<float> before;
    for (const int32_t token : prompt) {
      const std::span<const float> logits = prompt.front() == token && before.empty()
                                                ? model->session().Prefill({&token, 1}).logits
                                                : model->session().Append(token);
      double sum = 0;
      double squares = 0;
      for (const float logit : logits) {
        ASSERT_TRUE(std::isfinite(logit));
        sum += static_cast<double>(logit);
        squares += static_cast<double>(logit) * static_cast<double>(logit);
      }
      const auto count = static_cast<double>(logits.size());
      const double spread = std::sqrt(squares / count - sum * sum / count / count);
      EXPECT_GT(spread, 1.0);
      EXPECT_LT(spread, 5.0);
      const std::vector<float> now(logits.begin(), logits.end());
      EXPECT_NE(now, before);
      before = now;
    }
    for (const auto& experts : touched) {
      EXPECT_GE(experts.size(), skew > 0 ? 16u : 30u) << "routing has collapsed, of 32 experts";
    }
  }
}

// --- Tokenizers --------------------------------------------------------------------------------

TEST(SynthTokenizer, GemmaHasItsSizeAndSpecialTokens) {
  const std::string json = SyntheticTokenizerJson(SyntheticArch("gemma4"), 1);
  const TokenizerParts parts = ReadTokenizerJson(json, "tokenizer.json", IdConflicts::kRefuse);
  EXPECT_EQ(parts.model.merges.size(), 514906u);
  EXPECT_EQ(parts.added_tokens.size(), 24u);
  const Tokenizer tokenizer = Tokenizer::FromJson(json, "tokenizer.json");
  EXPECT_EQ(tokenizer.vocab_size(), 262144u);
  // The family's specification, 5.1.
  EXPECT_EQ(tokenizer.TokenToId("<bos>"), 2);
  EXPECT_EQ(tokenizer.TokenToId("<|tool_response>"), 50);
  EXPECT_EQ(tokenizer.TokenToId("<|channel>"), 100);
  EXPECT_EQ(tokenizer.TokenToId("<turn|>"), 106);
  EXPECT_EQ(tokenizer.TokenToId("\n\n"), 108);
  EXPECT_EQ(tokenizer.TokenToId("<0x00>"), 238);
  EXPECT_EQ(tokenizer.TokenToId("<0xFF>"), 493);
  const std::string text = "Hello world!\n\nCaf\u00e9 d\u00e9j\u00e0 vu, \U0001F60A  twice.";
  const std::vector<TokenId> ids = tokenizer.Encode(text, SpecialParsing::kNone);
  EXPECT_LT(ids.size(), text.size());
  EXPECT_EQ(tokenizer.Decode(ids, false), text);
}

TEST(SynthTokenizer, QwenHasItsSizeAndSpecialTokens) {
  const std::string json = SyntheticTokenizerJson(SyntheticArch("qwen36"), 1);
  const Tokenizer tokenizer = Tokenizer::FromJson(json, "tokenizer.json");
  EXPECT_EQ(tokenizer.id_limit(), 248070);  // the rows above are padding
  EXPECT_EQ(tokenizer.TokenToId("<|endoftext|>"), 248044);
  EXPECT_EQ(tokenizer.TokenToId("<|im_end|>"), 248046);
  EXPECT_EQ(tokenizer.TokenToId("<tool_call>"), 248058);
  EXPECT_EQ(tokenizer.TokenToId("<tool_response>"), 248066);
  EXPECT_EQ(tokenizer.TokenToId("</think>"), 248069);
  EXPECT_EQ(StopTokenIds(SyntheticArch("qwen36")), (std::vector<int32_t>{248046, 248044}));
  const std::string text = "Hello world!\n\nCaf\u00e9, \U0001F60A  twice.";
  EXPECT_EQ(tokenizer.Decode(tokenizer.Encode(text, SpecialParsing::kNone), false), text);
}

// --- Misuse ------------------------------------------------------------------------------------

ErrorCode CodeOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::kInternal;
}

TEST(SynthMisuse, RefusesWhatMakesNoCheckpoint) {
  for (const char* family : {"maple", "inkling", "deepseek_v4", "nothing"}) {
    EXPECT_EQ(CodeOf([&] { SyntheticArch(family); }), ErrorCode::kInvalidArgument) << family;
  }
  EXPECT_EQ(CodeOf([] { SyntheticArch("gemma4", 0); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([] { SyntheticArch("gemma4", 101); }), ErrorCode::kInvalidArgument);
  for (const double skew : {-0.1, 4.1, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(CodeOf([&] { SyntheticSource({.arch = TinyArch("gemma4"), .experts_skew = skew}); }),
              ErrorCode::kInvalidArgument);
  }
  ArchConfig narrow = TinyArch("qwen36");
  narrow.moe_intermediate_size = 96;
  EXPECT_EQ(CodeOf([&] { SyntheticSource({.arch = narrow}); }), ErrorCode::kInvalidArgument);
  ArchConfig wordless = TinyArch("qwen36");
  wordless.vocab_size = 512;
  EXPECT_EQ(CodeOf([&] { SyntheticSource({.arch = wordless}); }), ErrorCode::kInvalidArgument);
}

TEST(SynthMisuse, SnapshotLeavesStrangersAloneAndStops) {
  const Scratch scratch;
  SyntheticSource source({.arch = TinyArch("gemma4")});
  fs::create_directories(scratch / "full");
  std::ofstream(scratch / "full/note.txt") << "mine";
  EXPECT_EQ(CodeOf([&] { WriteSyntheticSnapshot(source, scratch / "full", {}); }),
            ErrorCode::kInstallState);
  const std::atomic<bool> cancelled = true;
  EXPECT_EQ(CodeOf([&] { WriteSyntheticSnapshot(source, scratch / "stopped", {}, &cancelled); }),
            ErrorCode::kCancelled);
  EXPECT_FALSE(fs::exists(scratch / "stopped/model.safetensors.index.json"));
}

}  // namespace
}  // namespace mference
