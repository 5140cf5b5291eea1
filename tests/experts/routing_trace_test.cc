#include "experts/routing_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "base/error.h"

namespace mference {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RoutingTraceTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  static std::string Bytes(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream content;
    content << file.rdbuf();
    return content.str();
  }
  // The message with which a file of these bytes is refused.
  std::string Refusal(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
    try {
      ReadTrace(path_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "read without complaint";
  }

  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("routing_trace_" + std::to_string(getpid()));
};

// Two layers that route of three, top 2 of 8: one step of two rows, one of one.
RoutingTrace Example() {
  TraceBuilder builder(/*layers=*/3, /*experts_per_layer=*/8, /*blob_bytes=*/4096);
  builder.Add(0, 2, std::vector<int32_t>{1, 5, 0, 7}, std::vector<float>{0.5f, 0.25f, 1, 1});
  builder.Add(2, 2, std::vector<int32_t>{2, 3, 3, 4}, std::vector<float>{0, 1, 3, 0.75f});
  builder.Add(0, 2, std::vector<int32_t>{6, 7}, std::vector<float>{1, 0.2f});
  builder.Add(2, 2, std::vector<int32_t>{0, 1}, std::vector<float>{1, 1});
  // A step that failed half way.
  builder.Add(0, 2, std::vector<int32_t>{0, 1}, std::vector<float>{1, 1});
  return builder.Finish();
}

TEST_F(RoutingTraceTest, BuildsStepsFromLayers) {
  const RoutingTrace trace = Example();
  EXPECT_THAT(trace.routed_layers, ElementsAre(0, 2));
  EXPECT_THAT(trace.rows, ElementsAre(2, 1));
  EXPECT_EQ(trace.tokens(), 3);
  EXPECT_THAT(trace.experts, ElementsAre(1, 5, 0, 7, 2, 3, 3, 4, 6, 7, 0, 1));
  // In 1/255 of a row's largest weight.
  EXPECT_THAT(trace.shares, ElementsAre(255, 128, 255, 255, 0, 255, 255, 64, 255, 51, 255, 255));
}

TEST_F(RoutingTraceTest, TheFileIsAsDocumented) {
  WriteTrace(path_, Example());
  const std::string bytes = Bytes(path_);
  const std::string header("MFROUTE1\x03\0\0\0\x08\0\0\0\x02\0\0\0\x02\0\0\0\0\x10\0\0\0\0\0\0",
                           32);
  EXPECT_EQ(bytes.substr(0, 32), header);
  EXPECT_EQ(bytes.substr(32, 4), std::string("\0\0\x02\0", 4));
  EXPECT_EQ(bytes.substr(36, 4), std::string("\x02\0\0\0", 4));
  EXPECT_EQ(bytes.substr(40, 8), std::string("\x01\x05\0\x07\x02\x03\x03\x04", 8));
  EXPECT_EQ(bytes.size(), 32u + 4u + (4u + 8u + 8u) + (4u + 4u + 4u));
}

TEST_F(RoutingTraceTest, ReadsWhatItWrote) {
  const RoutingTrace written = Example();
  WriteTrace(path_, written);
  const RoutingTrace read = ReadTrace(path_);
  EXPECT_EQ(read.layers, written.layers);
  EXPECT_EQ(read.experts_per_layer, written.experts_per_layer);
  EXPECT_EQ(read.top_k, written.top_k);
  EXPECT_EQ(read.blob_bytes, written.blob_bytes);
  EXPECT_EQ(read.routed_layers, written.routed_layers);
  EXPECT_EQ(read.rows, written.rows);
  EXPECT_EQ(read.experts, written.experts);
  EXPECT_EQ(read.shares, written.shares);
}

TEST_F(RoutingTraceTest, ManyExpertsTakeTwoBytes) {
  TraceBuilder builder(1, 300, 1);
  builder.Add(0, 2, std::vector<int32_t>{7, 299}, std::vector<float>{1, 1});
  WriteTrace(path_, builder.Finish());
  EXPECT_THAT(ReadTrace(path_).experts, ElementsAre(7, 299));
}

TEST_F(RoutingTraceTest, RefusesWhatIsNoTrace) {
  WriteTrace(path_, Example());
  const std::string good = Bytes(path_);
  const auto changed = [&good](size_t at, char value) {
    std::string bytes = good;
    bytes[at] = value;
    return bytes;
  };
  EXPECT_THAT(Refusal(""), HasSubstr("expected 8 more bytes, found 0"));
  EXPECT_THAT(Refusal("GIF89a, a picture"), HasSubstr("does not begin with MFROUTE1"));
  EXPECT_THAT(Refusal(good.substr(0, good.size() - 1)), HasSubstr("more bytes, found"));
  EXPECT_THAT(Refusal(changed(8, 0)), HasSubstr("the number of layers is 0"));
  EXPECT_THAT(Refusal(changed(11, 0x40)), HasSubstr("expected 1 to 4096"));
  EXPECT_THAT(Refusal(changed(16, 9)), HasSubstr("top_k is 9, expected 1 to 8"));
  EXPECT_THAT(Refusal(changed(34, 0)), HasSubstr("routed layer 0 is out of order"));
  EXPECT_THAT(Refusal(changed(34, 3)), HasSubstr("routed layer 3 is out of order or range"));
  EXPECT_THAT(Refusal(changed(39, 0x7f)), HasSubstr("the number of rows"));
  EXPECT_THAT(Refusal(changed(41, 8)), HasSubstr("expert 8 is out of order or range"));
  EXPECT_THAT(Refusal(changed(41, 1)), HasSubstr("expert 1 is out of order or range"));
}

}  // namespace
}  // namespace mference
