// The grammar of a whole reply: reasoning, content of a given form, calls of declared tools, in a
// family's native syntax.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "constrain/grammar.h"
#include "constrain/schema_compiler.h"
#include "text/dialects/dialect.h"

namespace mference {

// A tool as the request declared it. The schema's order of keys is the order of the arguments.
struct ConstrainedTool {
  std::string name;
  OrderedJson parameters;
};

struct ReplyGrammarOptions {
  TextFamily family = TextFamily::kGemma4;
  ReplyStart start = ReplyStart::kContent;
  // The model may reason first, where it opens its reasoning itself (Gemma's channel, a section of
  // Inkling's). Reasoning that the prompt has opened (`start`) is closed in any case.
  bool reasoning = false;

  // The content must be a value of this schema ({"type":"object"} for any JSON object).
  std::optional<OrderedJson> schema;

  enum class Calls {
    kNone,      // only content
    kAllowed,   // content (of `schema`, if given) or calls; without `schema` content, then calls
    kRequired,  // calls only
  };
  Calls calls = Calls::kNone;
  std::vector<ConstrainedTool> tools;
  std::string only_tool;       // if not empty, the one that must be called
  bool parallel_calls = true;  // false: one call at most
};

// Compiles. Throws SchemaError (its pointer begins with "#"; for a tool the message begins with the
// tool's name), and kInvalidArgument for tools that cannot be called: no tools, a name that is not
// one, `only_tool` undeclared.
std::shared_ptr<const Grammar> CompileReplyGrammar(const ReplyGrammarOptions& options);

// The schema of "any JSON object".
OrderedJson AnyObjectSchema();

}  // namespace mference
