#include "text/framing/render_command.h"

#include <cctype>
#include <cstdio>

#include "text/framing/deepseek_encoder.h"
#include "text/template/operators.h"
#include "text/template/python_text.h"

namespace mference {
namespace {

using jinja::Dict;
using jinja::NumberStyle;
using jinja::Origin;
using jinja::Value;

// Contexts of a conformance set nest deeper than requests do.
constexpr size_t kMaxContextDepth = 128;

Value ParseInput(std::string_view text, const std::string& name, NumberStyle numbers) {
  return jinja::ParseJsonValue(text, name, ErrorCode::kMessagesInvalid, numbers, Origin::kData,
                               kMaxContextDepth);
}

// The member of a request as the encoder's flag; absent is `otherwise`.
bool Flag(const Dict& request, const char* name, bool otherwise) {
  const Value* member = request.Find(name);
  return member == nullptr || member->IsNone() ? otherwise : jinja::Truth(*member);
}

std::string EncodeRequest(const Value& request) {
  if (!request.IsDict()) {
    throw MessagesError("invalid_message", "request", "request must be an object");
  }
  const Dict& members = request.dict();
  const Value* messages = members.Find("messages");
  const Value* tools = members.Find("tools");
  const Value* effort = members.Find("reasoning_effort");
  DeepseekOptions options;
  options.thinking = Flag(members, "thinking", false);
  options.drop_thinking = Flag(members, "drop_thinking", true);
  if (effort != nullptr && !effort->IsNone()) {
    const std::string level = jinja::Str(*effort).text();
    if (level != "max" && level != "high") {
      throw DeepseekEncodingError("AssertionError",
                                  fmt::format("Invalid reasoning effort: {}", level));
    }
    options.maximum_effort = level == "max";
  }
  return EncodeDeepseek(messages != nullptr ? *messages : Value(),
                        tools != nullptr ? *tools : Value(), options)
      .text();
}

std::string ErrorLine(const std::string& error_class, const std::string& message) {
  OrderedJson line;
  line["error"]["class"] = error_class;
  line["error"]["message"] = message;
  return line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace

Prompt RenderConversation(const PromptRenderer& renderer, const RenderRequest& request) {
  Value messages = ParseInput(request.messages_json, "messages", NumberStyle::kAsWritten);
  Value tools;
  if (messages.IsDict()) {
    const Dict members = messages.dict();
    const Value* list = members.Find("messages");
    if (list == nullptr) {
      throw MessagesError("invalid_message", "messages", "the object has no member 'messages'");
    }
    if (const Value* given = members.Find("tools")) tools = *given;
    messages = *list;
  }
  if (!request.tools_json.empty()) {
    tools = ParseInput(request.tools_json, "tools", NumberStyle::kAsWritten);
  }
  return renderer.Render(ParseMessages(messages), ParseTools(tools, renderer.family()),
                         request.options);
}

Value ParseSetValue(std::string_view text) {
  try {
    return jinja::ParseJsonValue(text, "value", ErrorCode::kInvalidArgument,
                                 NumberStyle::kAsWritten, Origin::kData);
  } catch (const Error&) {
    return Value::Str(std::string(text), Origin::kData);
  }
}

std::tm ParsePinnedTime(std::string_view text) {
  std::tm time{};
  char separator = ' ';
  int end = 0;
  const std::string copy(text);
  const int fields =
      std::sscanf(copy.c_str(), "%4d-%2d-%2d%c%2d:%2d:%2d%n", &time.tm_year, &time.tm_mon,
                  &time.tm_mday, &separator, &time.tm_hour, &time.tm_min, &time.tm_sec, &end);
  const std::string_view rest = text.substr(std::min(text.size(), static_cast<size_t>(end)));
  const std::tm given = time;
  time.tm_year -= 1900;
  time.tm_mon -= 1;
  const bool complete =
      fields == 7 && (separator == ' ' || separator == 'T') && (rest.empty() || rest == "Z");
  // timegm fills in weekday and day of the year, and moves dates that do not exist.
  std::tm normalised = time;
  if (complete) timegm(&normalised);
  if (!complete || normalised.tm_mday != given.tm_mday || normalised.tm_mon != time.tm_mon ||
      normalised.tm_hour != given.tm_hour || normalised.tm_min != given.tm_min ||
      normalised.tm_sec != given.tm_sec) {
    Fail(ErrorCode::kInvalidArgument, "'{}' is no time; write 2026-01-02T03:04:05", text);
  }
  return normalised;
}

JsonlRenderer::JsonlRenderer(std::optional<std::string> template_source, std::tm now) : now_(now) {
  if (template_source) template_ = jinja::Template::Parse(*template_source, "template");
}

std::string JsonlRenderer::Render(const Value& input) const {
  if (!input.IsDict()) {
    throw MessagesError("invalid_message", "$", "a line must be a JSON object");
  }
  const Dict& members = input.dict();
  if (const Value* request = members.Find("request")) return EncodeRequest(*request);
  const Value* context = members.Find("context");
  if (context == nullptr || !context->IsDict()) {
    throw MessagesError("invalid_message", "context",
                        "a line needs an object 'context' or 'request'");
  }
  jinja::RenderOptions options;
  options.now = now_;
  const Value* source = members.Find("template");
  if (source == nullptr) {
    if (!template_) {
      throw MessagesError("invalid_message", "template",
                          "a line needs a 'template', as none was given for all");
    }
    return template_->Render(*context, options).text();
  }
  if (!source->IsString()) {
    throw MessagesError("invalid_message", "template", "'template' must be a string");
  }
  return jinja::Template::Parse(source->text(), "template").Render(*context, options).text();
}

std::string JsonlRenderer::RenderLine(std::string_view line) const {
  try {
    OrderedJson output;
    output["text"] = Render(ParseInput(line, "line", NumberStyle::kPython));
    return output.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  } catch (const jinja::TemplateError& error) {
    return ErrorLine(jinja::TemplateErrorKindName(error.kind()), error.detail());
  } catch (const DeepseekEncodingError& error) {
    return ErrorLine(error.kind(), error.what());
  } catch (const MessagesError& error) {
    return ErrorLine(error.reason(), error.what());
  } catch (const Error& error) {
    return ErrorLine("invalid_json", error.what());
  }
}

}  // namespace mference
