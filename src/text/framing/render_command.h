// What `mference render` does, without the command line: JSON in, JSON out.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "text/framing/prompt.h"
#include "text/framing/prompt_renderer.h"

namespace mference {

struct RenderRequest {
  std::string_view
      messages_json;            // an array of messages, or an object with `messages` (and `tools`)
  std::string_view tools_json;  // an array, or empty
  PromptOptions options;
};

// Plain `render`: everything the server does to a conversation before it is tokenised.
Prompt RenderConversation(const PromptRenderer& renderer, const RenderRequest& request);

// The value of `--set key=VALUE`: JSON where it parses, else the text itself.
jinja::Value ParseSetValue(std::string_view text);

// "2026-01-02 03:04:05" or "2026-01-02T03:04:05" (optionally a trailing Z) as calendar time,
// weekday and day of the year filled in. Throws kInvalidArgument.
std::tm ParsePinnedTime(std::string_view text);

// `render --jsonl`: one line of input to one line of output, nothing mapped or normalised. Input is
// {"context": {...}} for the given template, {"template": "...", "context": {...}}, or
// {"request": {...}} for DeepSeek's encoder. Output is {"text": ...} or
// {"error": {"class": ..., "message": ...}}; never throws for what a line says.
class JsonlRenderer {
 public:
  // `template_source` may be absent: lines then need their own.
  JsonlRenderer(std::optional<std::string> template_source, std::tm now);
  std::string RenderLine(std::string_view line) const;

 private:
  std::string Render(const jinja::Value& input) const;

  std::optional<jinja::Template> template_;
  std::tm now_;
};

}  // namespace mference
