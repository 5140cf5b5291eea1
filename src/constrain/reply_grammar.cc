#include "constrain/reply_grammar.h"

#include <functional>

#include "constrain/call_grammar.h"
#include "constrain/text_automata.h"
#include "text/dialects/reply_parser.h"

namespace mference {
namespace {

using State = GrammarBuilder::State;
using Calls = ReplyGrammarOptions::Calls;

class ReplyCompiler {
 public:
  explicit ReplyCompiler(const ReplyGrammarOptions& options) : options_(options) {}

  std::shared_ptr<const Grammar> Compile() {
    CheckTools();
    const State end = builder_.Return();
    State start = 0;
    switch (options_.family) {
      case TextFamily::kGemma4:
        start = Gemma(end);
        break;
      case TextFamily::kQwen36:
      case TextFamily::kMaple:
        start = Thinking(Body(end), "\n\n");
        break;
      case TextFamily::kDeepseekV4:
        start = Thinking(Body(end), "");
        break;
      case TextFamily::kInkling:
        start = Inkling(end);
        break;
    }
    for (auto& compiler : compilers_) compiler->CompileRules();
    // Where the reply's last byte leaves open whether more follows, its end takes a token.
    auto grammar = std::make_shared<Grammar>(builder_.Finish(start, /*end_cost=*/1));
    if (grammar->Cost(start, Grammar::kMaxDepth) == kUnreachable) {
      throw SchemaError("#", fmt::format("nothing of at most {} levels satisfies the schema",
                                         Grammar::kMaxDepth));
    }
    return grammar;
  }

 private:
  void CheckTools() const {
    if (options_.calls == Calls::kNone) return;
    if (options_.tools.empty()) {
      Fail(ErrorCode::kInvalidArgument, "calls are asked for, but no tool is declared");
    }
    bool found = options_.only_tool.empty();
    for (const ConstrainedTool& tool : options_.tools) {
      if (!IsToolName(tool.name)) {
        Fail(ErrorCode::kInvalidArgument, "'{}' is no tool name", tool.name);
      }
      found = found || tool.name == options_.only_tool;
    }
    if (!found) {
      Fail(ErrorCode::kInvalidArgument, "the tool '{}' that must be called is not declared",
           options_.only_tool);
    }
  }

  State Mark(Marker marker, State next) {
    const char byte = MarkerByte(options_.family, marker);
    return builder_.Literal({&byte, 1}, next);
  }

  // Content of the demanded form.
  State Content(State next) {
    if (options_.schema) {
      compilers_.push_back(
          std::make_unique<SchemaCompiler>(*options_.schema, ValueSyntax::kJson, &builder_));
      return compilers_.back()->Document(next);
    }
    const bool tags = options_.family == TextFamily::kDeepseekV4 && options_.calls != Calls::kNone;
    return builder_.Text(tags ? DsmlValueText() : RawText(), next);
  }

  // Calls, one or more, then `next`.
  State CallSequence(State next) {
    CallGrammar calls(options_.family, &builder_, &compilers_);
    std::vector<const ConstrainedTool*> tools;
    for (const ConstrainedTool& tool : options_.tools) {
      if (options_.only_tool.empty() || tool.name == options_.only_tool) tools.push_back(&tool);
    }
    return calls.Sequence(tools, options_.parallel_calls, next);
  }

  // All after the reasoning, for families whose content needs no frame.
  State Body(State end) {
    switch (options_.calls) {
      case Calls::kNone:
        return Content(end);
      case Calls::kRequired:
        return CallSequence(end);
      case Calls::kAllowed:
        break;
    }
    const State calls = CallSequence(end);
    if (options_.schema) return builder_.Split({Content(end), calls});
    return Content(builder_.Split({end, calls}));
  }

  // A think block that the prompt has opened.
  State Thinking(State body, std::string_view gap) {
    if (options_.start != ReplyStart::kReasoning) return body;
    return builder_.Text(RawText(), Mark(Marker::kThinkClose, builder_.Literal(gap, body)));
  }

  State Gemma(State end) {
    const State body = Body(end);
    const bool opened = options_.start == ReplyStart::kReasoning;
    if (!opened && !options_.reasoning) return body;
    const State text = builder_.Text(RawText(), Mark(Marker::kChannelClose, body));
    if (opened) return text;
    return builder_.Split({Mark(Marker::kChannelOpen, builder_.Literal("thought\n", text)), body});
  }

  // A reply of Inkling is a list of sections.
  State Inkling(State end) {
    const auto section_end = [&](State next) { return Mark(Marker::kEndMessage, next); };
    std::vector<State> ways;  // after <|message_model|>
    State content = 0;        // after <|content_text|>
    if (options_.calls == Calls::kRequired) {
      ways.push_back(CallSequence(end));
    } else if (options_.calls == Calls::kNone || options_.schema) {
      content = Content(section_end(end));
      if (options_.calls == Calls::kAllowed) ways.push_back(CallSequence(end));
    } else {
      const State calls = CallSequence(end);
      content = Content(section_end(builder_.Split({end, Mark(Marker::kMessageModel, calls)})));
      ways.push_back(calls);
    }
    if (options_.calls != Calls::kRequired) ways.push_back(Mark(Marker::kContentText, content));
    const State header = builder_.Split(ways);
    const State thought =
        builder_.Text(RawText(), section_end(Mark(Marker::kMessageModel, header)));
    switch (options_.start) {
      case ReplyStart::kContent:
        // Inside a text section already: calls can only follow it.
        if (options_.calls == Calls::kRequired) {
          return section_end(Mark(Marker::kMessageModel, header));
        }
        return content;
      case ReplyStart::kReasoning:
        return thought;
      case ReplyStart::kMessageModel:
        break;
    }
    if (!options_.reasoning) return header;
    return builder_.Split({Mark(Marker::kContentThinking, thought), header});
  }

  const ReplyGrammarOptions& options_;
  GrammarBuilder builder_;
  std::vector<std::unique_ptr<SchemaCompiler>> compilers_;
};

}  // namespace

OrderedJson AnyObjectSchema() { return OrderedJson::object({{"type", "object"}}); }

std::shared_ptr<const Grammar> CompileReplyGrammar(const ReplyGrammarOptions& options) {
  try {
    return ReplyCompiler(options).Compile();
  } catch (const GrammarTooLarge&) {
    throw SchemaError("#", "the schema is too large to constrain a reply to");
  }
}

}  // namespace mference
