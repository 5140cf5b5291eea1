// Every template rendering of the golden set: text or error, through the line interface of
// `render`.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "text/framing/render_command.h"

namespace mference {
namespace {

constexpr uint64_t kMaxFileBytes = 4 << 20;

std::string ReadData(const std::string& name) {
  return ReadTextFile(std::filesystem::path(MFERENCE_TEST_DATA) / "templates" / name,
                      kMaxFileBytes);
}

// `undefined` and `runtime` may stand for each other; touching Python's internals may fail in any
// way.
bool SameErrorKind(const std::string& expected, const std::string& found) {
  const auto plain = [](const std::string& kind) {
    return kind == "undefined" || kind == "runtime";
  };
  return expected == found || (plain(expected) && plain(found)) || expected == "security";
}

void CheckCase(const OrderedJson& golden, const std::string& line_out) {
  const OrderedJson result = ParseOrderedJson(line_out, "output", ErrorCode::kInternal, 8);
  if (golden.contains("expected")) {
    ASSERT_TRUE(result.contains("text")) << line_out;
    EXPECT_EQ(result["text"].get<std::string>(), golden["expected"].get<std::string>());
    return;
  }
  const std::string kind = golden["error"]["kind"].get<std::string>();
  if (kind == "security" && result.contains("text")) return;
  ASSERT_TRUE(result.contains("error")) << line_out;
  EXPECT_TRUE(SameErrorKind(kind, result["error"]["class"].get<std::string>()))
      << kind << " against " << line_out;
  if (kind == "raise" || kind == "NotImplementedError") {
    EXPECT_EQ(result["error"]["message"], golden["error"]["message"]);
  }
}

class TemplateGoldens : public testing::TestWithParam<const char*> {};

TEST_P(TemplateGoldens, RenderAsTheReference) {
  const OrderedJson golden = ParseOrderedJson(ReadData(std::string(GetParam()) + ".json"),
                                              GetParam(), ErrorCode::kInternal, 128);
  std::optional<std::string> source;
  if (golden.contains("template")) source = ReadData(golden["template"].get<std::string>());
  const JsonlRenderer renderer(source, ParsePinnedTime("2026-01-02 03:04:05"));
  for (const OrderedJson& test_case : golden["cases"]) {
    SCOPED_TRACE(test_case["id"].get<std::string>());
    OrderedJson line;
    for (const char* member : {"template", "context", "request"}) {
      if (test_case.contains(member)) line[member] = test_case[member];
    }
    CheckCase(test_case, renderer.RenderLine(line.dump()));
  }
}

INSTANTIATE_TEST_SUITE_P(All, TemplateGoldens,
                         testing::Values("jinja", "gemma4", "gemma4-r16934", "gemma4-r16448",
                                         "gemma4-r12133", "qwen36", "maple", "inkling",
                                         "inkling-tokenspeed", "deepseek_v4"),
                         [](const auto& suite) {
                           std::string name = suite.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace mference
