// Chat templates: Jinja as model publishers write it, parsed once, rendered many times.
//
// The language is that of Jinja2 3.1's immutable sandbox with trim_blocks, lstrip_blocks, loop
// controls and `{% generation %}`; `tojson` is Python's json.dumps without ASCII escaping.
// Templates that load others (extends, include, import) are refused. A render is bounded in steps,
// memory, output and depth, so no template and no conversation makes it hang or overflow.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/template/traced_string.h"
#include "text/template/value.h"

namespace mference::jinja {

enum class TemplateErrorKind {
  kSyntax,     // the template does not parse, or names an unknown filter or test
  kRaise,      // the template called raise_exception
  kUndefined,  // an undefined value was used
  kSecurity,   // an attribute that the sandbox hides was used
  kRuntime,    // any other failure of the evaluation
  kLimit,      // a bound of RenderLimits was reached
};

// "syntax", "raise", "undefined", "security", "runtime", "limit": stable, for tests and tools.
const char* TemplateErrorKindName(TemplateErrorKind kind);

// code() is kTemplateInvalid for kSyntax and kLimit, else kMessagesInvalid: the template refused
// the conversation. what() has the template's name and line, `detail()` the bare message (for
// kRaise exactly what the template said).
class TemplateError : public Error {
 public:
  TemplateError(TemplateErrorKind kind, const std::string& detail, const std::string& location = "",
                int line = 0);
  TemplateErrorKind kind() const { return kind_; }
  const std::string& detail() const { return detail_; }
  int line() const { return line_; }  // 1-based; 0 when unknown

 private:
  TemplateErrorKind kind_;
  std::string detail_;
  int line_;
};

struct RenderLimits {
  uint64_t max_steps = 50'000'000;          // expressions and statements evaluated
  uint64_t max_bytes = 512ULL << 20;        // strings and lists made, cumulative
  uint64_t max_output_bytes = 64ULL << 20;  // of the result
  int max_depth = 1000;                     // nested evaluations: macros, expressions, blocks
};

struct RenderOptions {
  RenderLimits limits;
  std::tm now{};  // what strftime_now formats: local time of the render
};

struct ParsedTemplate;

// Immutable after Parse; Render may run on several threads at once.
class Template {
 public:
  // Templates longer than this are refused.
  static constexpr size_t kMaxSourceBytes = 1 << 20;

  // Throws TemplateError (kSyntax) with the line. `name` appears in messages.
  static Template Parse(std::string_view source, std::string name);

  // Renders with the members of `context`, a dictionary with string keys, as variables.
  TracedString Render(const Value& context, const RenderOptions& options) const;

  // Whether the source has a variable of that name, its own or one of the context.
  bool Mentions(std::string_view variable) const;

 private:
  explicit Template(std::shared_ptr<const ParsedTemplate> parsed) : parsed_(std::move(parsed)) {}
  std::shared_ptr<const ParsedTemplate> parsed_;
};

}  // namespace mference::jinja
