// `mference logits` and `perplexity` against the references, through the files users would use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "base/json.h"
#include "cli/program_runner.h"
#include "format/safetensors.h"

namespace mference {
namespace {

using testing::HasSubstr;
using testing_support::DemoHome;
using testing_support::ProgramResult;
using testing_support::RunMference;

template <typename Value>
std::vector<Value> Read(const SafetensorsFile& file, const std::string& name) {
  const auto bytes = file.Bytes(file.Tensor(name));
  std::vector<Value> values(bytes.size() / sizeof(Value));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

class ScoreTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    DemoHome();
    const ProgramResult result = RunMference(
        {"install", "golden", "--from", MFERENCE_TEST_DATA "/goldens/gemma4/snapshot", "--quiet"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }

  // By hand: the file has types that checkpoints never have.
  static std::vector<int32_t> FirstTraceWindow() {
    std::ifstream file(MFERENCE_TEST_DATA "/demo/reference.safetensors", std::ios::binary);
    uint64_t header_bytes = 0;
    file.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
    std::string header(header_bytes, '\0');
    file.read(header.data(), static_cast<std::streamsize>(header_bytes));
    const auto offset =
        Json::parse(header).at("trace.ids").at("data_offsets").at(0).get<uint64_t>();
    file.seekg(static_cast<std::streamoff>(sizeof(header_bytes) + header_bytes + offset));
    std::vector<int32_t> ids(1024);
    file.read(reinterpret_cast<char*>(ids.data()),
              static_cast<std::streamsize>(ids.size() * sizeof(int32_t)));
    return ids;
  }

  static std::string WriteJson(const std::string& name, const Json& json) {
    const std::filesystem::path path = DemoHome() / name;
    std::ofstream(path) << json;
    return path.string();
  }
};

TEST_F(ScoreTest, LogitsAreTheGoldens) {
  constexpr int kSequences = 3;
  const SafetensorsFile reference(MFERENCE_TEST_DATA "/goldens/gemma4/reference.safetensors");
  const double tolerance =
      Json::parse(std::ifstream(MFERENCE_TEST_DATA "/goldens/gemma4/reference.json"))
          .at("tolerance")
          .at("float32_implementation_logits_max_abs")
          .get<double>();
  Json sequences = Json::array();
  for (int i = 0; i < kSequences; ++i) {
    sequences.push_back(Read<int32_t>(reference, fmt::format("seq{}.tokens", i)));
  }
  const std::string tokens = WriteJson("golden_ids.json", sequences);
  const std::string out = (DemoHome() / "logits.safetensors").string();
  for (const std::vector<std::string>& how :
       std::vector<std::vector<std::string>>{{},
                                             {"--chunk", "7"},
                                             {"--decode-from", "3"},
                                             {"--decode-from", "0"},
                                             {"--snapshot-at", "4"}}) {
    std::vector<std::string> arguments = {"logits", "golden", "--tokens", tokens,
                                          "--out",  out,      "--kv",     "f32"};
    arguments.insert(arguments.end(), how.begin(), how.end());
    const ProgramResult result = RunMference(arguments);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, "");
    const SafetensorsFile file(out);
    for (int i = 0; i < kSequences; ++i) {
      const std::string name = fmt::format("seq{}.logits", i);
      EXPECT_EQ(file.Tensor(name).dtype, DType::kF32);
      ASSERT_EQ(file.Tensor(name).shape, reference.Tensor(name).shape);
      const auto got = Read<float>(file, name);
      const auto expected = Read<float>(reference, name);
      double worst = 0;
      for (size_t j = 0; j < got.size(); ++j) {
        worst = std::max(worst, std::abs(double{got[j]} - expected[j]));
      }
      EXPECT_LE(worst, tolerance) << name << (how.empty() ? "" : how[0] + " " + how[1]);
    }
  }
}

// Window 0 of the demo's held-out text; the value is the NumPy runner's.
TEST_F(ScoreTest, PerplexityIsTheReferences) {
  const std::vector<int32_t> ids = FirstTraceWindow();
  const std::string tokens = WriteJson("window.json", Json::array({ids}));
  const ProgramResult result =
      RunMference({"perplexity", "demo", "--tokens", tokens, "--kv", "f32", "--precise", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_NEAR(json.at("perplexity").get<double>(), 41.1194, 41.1194 * 0.001);
  EXPECT_EQ(json.at("sequences").at(0).at("tokens"), 1023);
}

TEST_F(ScoreTest, PerplexityLines) {
  const ProgramResult result =
      RunMference({"perplexity", "golden", "--tokens", "-"}, "[[1,2,3],[4,5,6,7]]");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              testing::MatchesRegex("seq0: [0-9.]+ over 2 tokens\nseq1: [0-9.]+ over 3 tokens\n"
                                    "all: [0-9.]+ over 5 tokens\n"));
}

TEST_F(ScoreTest, ASnapshotLiesInsideOfEverySequence) {
  const ProgramResult result = RunMference({"logits", "golden", "--tokens", "-", "--out",
                                            (DemoHome() / "none").string(), "--snapshot-at", "3"},
                                           "[[1,2,3,4],[4,5,6]]");
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, testing::HasSubstr("--snapshot-at is 3, but sequence 1 has 3 tokens"));
}

TEST_F(ScoreTest, BadTokensAreRefused) {
  const std::string out = (DemoHome() / "refused.safetensors").string();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[[1,2],[3,512]]", "outside the vocabulary of 512"},
      {"[[1,-2]]", "-2 is no token id"},
      {"[[]]", "at least one id"},
      {"[]", "at least one sequence"},
      {"[1,2]", "array"},
      {"{}", "array"},
      {"[[1,", "standard input"}};
  for (const auto& [text, expected] : cases) {
    const ProgramResult result =
        RunMference({"logits", "golden", "--tokens", "-", "--out", out}, text);
    EXPECT_EQ(result.exit_code, 2) << text;
    EXPECT_THAT(result.err, HasSubstr(expected)) << text;
    EXPECT_FALSE(std::filesystem::exists(out)) << text;
  }
  const ProgramResult context = RunMference(
      {"logits", "golden", "--tokens", "-", "--out", out, "--context", "2"}, "[[1,2,3]]");
  EXPECT_EQ(context.exit_code, 2);
  EXPECT_THAT(context.err, HasSubstr("the context holds 2"));
}

}  // namespace
}  // namespace mference
