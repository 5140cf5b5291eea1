#include "text/template/template.h"

#include <algorithm>

#include "text/template/interpreter.h"
#include "text/template/parser.h"
#include "text/template/unicode.h"

namespace mference::jinja {
namespace {

std::string Where(const std::string& detail, const std::string& location, int line) {
  if (location.empty()) return detail;
  if (line == 0) return fmt::format("{}: {}", location, detail);
  return fmt::format("{}, line {}: {}", location, line, detail);
}

bool IsTemplatesFault(TemplateErrorKind kind) {
  return kind == TemplateErrorKind::kSyntax || kind == TemplateErrorKind::kLimit;
}

}  // namespace

const char* TemplateErrorKindName(TemplateErrorKind kind) {
  switch (kind) {
    case TemplateErrorKind::kSyntax:
      return "syntax";
    case TemplateErrorKind::kRaise:
      return "raise";
    case TemplateErrorKind::kUndefined:
      return "undefined";
    case TemplateErrorKind::kSecurity:
      return "security";
    case TemplateErrorKind::kRuntime:
      return "runtime";
    case TemplateErrorKind::kLimit:
      return "limit";
  }
  return "unknown";
}

TemplateError::TemplateError(TemplateErrorKind kind, const std::string& detail,
                             const std::string& location, int line)
    : Error(IsTemplatesFault(kind) ? ErrorCode::kTemplateInvalid : ErrorCode::kMessagesInvalid,
            Where(detail, location, line)),
      kind_(kind),
      detail_(detail),
      line_(line) {}

Template Template::Parse(std::string_view source, std::string name) {
  const auto fail = [&](const std::string& problem) {
    throw TemplateError(TemplateErrorKind::kSyntax, problem, name, 0);
  };
  if (source.size() > kMaxSourceBytes) {
    fail(fmt::format("{} bytes are more than the {} a template may have", source.size(),
                     kMaxSourceBytes));
  }
  const size_t bad = FindInvalidUtf8(source);
  if (bad != std::string_view::npos) fail(fmt::format("not valid UTF-8 at byte {}", bad));
  try {
    return Template(std::make_shared<const ParsedTemplate>(ParseTemplate(source, name)));
  } catch (const TemplateError& error) {
    throw TemplateError(error.kind(), error.detail(), name, error.line());
  }
}

TracedString Template::Render(const Value& context, const RenderOptions& options) const {
  Check(context.IsDict(), "a template's context is a dictionary");
  Interpreter interpreter(*parsed_, context, options);
  try {
    return interpreter.Run();
  } catch (const TemplateError& error) {
    throw TemplateError(error.kind(), error.detail(), parsed_->name, interpreter.line());
  }
}

bool Template::Mentions(std::string_view variable) const {
  return std::find(parsed_->symbols.begin(), parsed_->symbols.end(), variable) !=
         parsed_->symbols.end();
}

}  // namespace mference::jinja
