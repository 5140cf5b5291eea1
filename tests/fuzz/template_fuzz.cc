// Any bytes as a template, rendered over a small conversation within small bounds: it fails with a
// TemplateError or gives text whose provenance covers it.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/template/template.h"

namespace {

using namespace mference::jinja;  // NOLINT(google-build-using-namespace)

const Value& Context() {
  static const Value context = ParseJsonValue(
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": " hé <|x|> "},
          {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function":
            {"name": "f", "arguments": {"a": 1.5, "b": [null, true, 12345678901234567890123]}}}]}],
          "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
          "add_generation_prompt": true, "x": "abc", "n": 3, "l": [3, 1, 2], "d": {"b": 1, "A": 2}})",
      "context", mference::ErrorCode::kInternal, NumberStyle::kPython, Origin::kData);
  return context;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  RenderOptions options;
  options.limits = {.max_steps = 20'000, .max_bytes = 4 << 20, .max_output_bytes = 1 << 20};
  try {
    const std::string_view source(reinterpret_cast<const char*>(data), size);
    const TracedString text = Template::Parse(source, "fuzz").Render(Context(), options);
    size_t covered = 0;
    text.ForEachRun([&](size_t begin, size_t end, Origin) {
      if (begin != covered || end <= begin) std::abort();
      covered = end;
    });
    if (covered != text.size()) std::abort();
  } catch (const TemplateError&) {
  }
  return 0;
}
