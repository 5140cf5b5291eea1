#include "constrain/call_grammar.h"

#include <algorithm>

#include "constrain/reply_grammar.h"
#include "constrain/schema_keywords.h"
#include "constrain/text_automata.h"
#include "text/dialects/dsml.h"
#include "text/dialects/qwen_call.h"

namespace mference {
namespace {

using Branch = SchemaCompiler::Branch;
using State = GrammarBuilder::State;

constexpr std::string_view kParameterClose = "</parameter>";

bool IsTagged(TextFamily family) {
  return family == TextFamily::kQwen36 || family == TextFamily::kDeepseekV4;
}

std::string DsmlTagOpen(std::string_view element) {
  return fmt::format("{}{}", kDsmlOpen, element);
}
std::string DsmlTagClose(std::string_view element) {
  return fmt::format("{}{}>", kDsmlClose, element);
}

// Whether Qwen's reader takes every value of a parameter as the string it is: what its schema says
// without following references.
bool IsDeclaredString(const OrderedJson& schema) {
  if (!schema.is_object()) return false;
  const auto is_string = [](const OrderedJson& type) { return type == OrderedJson("string"); };
  if (const OrderedJson* type = MemberOf(schema, "type")) {
    if (!type->is_array()) return is_string(*type);
    return !type->empty() && std::all_of(type->begin(), type->end(), is_string);
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const OrderedJson* parts = MemberOf(schema, keyword);
    if (parts == nullptr || !parts->is_array()) continue;
    bool any = false;
    for (const OrderedJson& part : *parts) {
      if (!part.is_object() || !part.contains("type")) continue;
      if (!IsDeclaredString(part)) return false;
      any = true;
    }
    return any;
  }
  const OrderedJson* values = MemberOf(schema, "enum");
  return values != nullptr && values->is_array() && !values->empty() &&
         std::all_of(values->begin(), values->end(),
                     [](const OrderedJson& value) { return value.is_string(); });
}

// Text that the same reader cannot take for JSON, whatever the schema.
const DfaPtr& PlainValueText() {
  static const DfaPtr dfa = [] {
    const std::vector<ScalarRange> every = {{0, 0x10FFFF}};
    // No space, quote, digit, minus, bracket, brace, and none of t f n T F.
    const std::vector<ScalarRange> first = {{'#', ','}, {'.', '/'},      {':', 'E'}, {'G', 'S'},
                                            {'U', 'Z'}, {'^', 'e'},      {'g', 'm'}, {'o', 's'},
                                            {'u', 'z'}, {0xA1, 0x10FFFF}};
    const RegexPtr text = RegexOptional(
        RegexConcat({RegexScalars(first), RegexRepeat(RegexScalars(every), 0, Regex::kUnbounded)}));
    const std::optional<DfaPtr> made = MakeDfa(text);
    Check(made && *made, "a built-in automaton");
    const std::optional<DfaPtr> without = Intersect(**made, *QwenValueText());
    Check(without && *without, "a built-in automaton");
    return *without;
  }();
  return dfa;
}

[[noreturn]] void Refuse(const std::string& tool, const SchemaError& error) {
  throw SchemaError(error.pointer(),
                    fmt::format("in the parameters of the tool {}: {}", tool,
                                std::string_view(error.what()).substr(error.pointer().size() + 2)));
}

}  // namespace

// The three parts of one call around its name and its arguments.
CallGrammar::Frame CallGrammar::FrameOf(const std::string& name) const {
  switch (family_) {
    case TextFamily::kGemma4:
      return {Mark(Marker::kCallOpen) + "call:", "", Mark(Marker::kCallClose)};
    case TextFamily::kQwen36:
      return {fmt::format("{}\n{}", Mark(Marker::kCallOpen), kFunctionOpen), ">\n",
              fmt::format("{}\n{}", kFunctionClose, Mark(Marker::kCallClose))};
    case TextFamily::kMaple:
      return {Mark(Marker::kCallOpen) + "\n{\"name\": \"",
              "\", \"arguments\": ", "}\n" + Mark(Marker::kCallClose)};
    case TextFamily::kDeepseekV4:
      return {DsmlTagOpen(kDsmlInvoke) + " name=\"", "\">\n", DsmlTagClose(kDsmlInvoke) + "\n"};
    case TextFamily::kInkling:
      return {"", fmt::format("{}{{\"name\":\"{}\",\"args\":", Mark(Marker::kInvokeJson), name),
              "}" + Mark(Marker::kEndMessage)};
  }
  Fail(ErrorCode::kInternal, "internal error: a family without calls");
}

CallGrammar::State CallGrammar::Sequence(const std::vector<const ConstrainedTool*>& tools,
                                         bool parallel, State next) {
  const bool block = family_ == TextFamily::kDeepseekV4;
  if (block) next = builder_.Literal(DsmlTagClose(kDsmlCalls), next);
  const State after = builder_.Forward();
  std::vector<State> calls;
  for (const ConstrainedTool* tool : tools) {
    const Frame frame = FrameOf(tool->name);
    const State arguments = Arguments(*tool, builder_.Literal(frame.close, after));
    calls.push_back(builder_.Literal(frame.open + tool->name + frame.named, arguments));
  }
  const State call = builder_.Split(calls);
  std::vector<State> ways = {next};
  if (parallel) {
    std::string gap;
    if (family_ == TextFamily::kQwen36 || family_ == TextFamily::kMaple) gap = "\n";
    if (family_ == TextFamily::kInkling) gap = Mark(Marker::kMessageModel);
    ways.push_back(builder_.Literal(gap, call));
    // Gemma asks for the results with a token of its own, which ends the reply.
    if (family_ == TextFamily::kGemma4) {
      ways.push_back(builder_.OptionalMarker(MarkerByte(family_, Marker::kToolResponseOpen), next));
    }
  }
  builder_.SetTargets(after, ways);
  return block ? builder_.Literal("\n\n" + DsmlTagOpen(kDsmlCalls) + ">\n", call) : call;
}

CallGrammar::State CallGrammar::Arguments(const ConstrainedTool& tool, State next) {
  const ValueSyntax syntax =
      family_ == TextFamily::kGemma4 ? ValueSyntax::kGemma : ValueSyntax::kJson;
  compilers_.push_back(std::make_unique<SchemaCompiler>(tool.parameters, syntax, &builder_));
  SchemaCompiler* compiler = compilers_.back().get();
  try {
    const State arguments =
        IsTagged(family_) ? TaggedArguments(compiler, next) : ObjectArguments(compiler, next);
    compiler->CompileRules();
    return arguments;
  } catch (const SchemaError& error) {
    Refuse(tool.name, error);
  }
}

CallGrammar::State CallGrammar::ObjectArguments(SchemaCompiler* compiler, State next) {
  std::vector<State> ways;
  for (const Branch& branch : compiler->ExpandDocument()) {
    if (branch.is_object()) ways.push_back(compiler->Value(branch, next));
  }
  if (ways.empty()) throw SchemaError("#", "a tool's parameters must be an object");
  return builder_.Split(std::move(ways));
}

// One element per argument. Arguments that the schema does not name are never written: the syntax
// carries no types for them.
CallGrammar::State CallGrammar::TaggedArguments(SchemaCompiler* compiler, State next) {
  std::vector<State> ways;
  for (const Branch& branch : compiler->ExpandDocument()) {
    if (!branch.is_object()) continue;
    const auto members = compiler->MembersOf(branch);
    std::vector<State> from = {next};  // what may come where property i is the first that may
    State after = next;
    for (size_t i = members.properties.size(); i-- > 0;) {
      const SchemaCompiler::Property& property = members.properties[i];
      if (property.required) from.clear();
      from.insert(from.begin(), TaggedParameter(compiler, property, after));
      after = builder_.Split(from);
    }
    ways.push_back(after);
  }
  if (ways.empty()) throw SchemaError("#", "a tool's parameters must be an object");
  return builder_.Split(std::move(ways));
}

CallGrammar::State CallGrammar::TaggedParameter(SchemaCompiler* compiler,
                                                const SchemaCompiler::Property& property,
                                                State next) {
  const bool qwen = family_ == TextFamily::kQwen36;
  const std::string_view forbidden = qwen ? "\n<>" : "\n\"";
  if (property.name.empty() || property.name.find_first_of(forbidden) != std::string::npos ||
      property.name.find("DSML｜") != std::string::npos) {
    throw SchemaError(property.pointer, "the name cannot be written in the model's call syntax");
  }
  const State close = builder_.Literal(
      qwen ? fmt::format("\n{}\n", kParameterClose) : DsmlTagClose(kDsmlParameter) + "\n", next);
  const bool declared_string = IsDeclaredString(*property.schema);
  std::vector<State> strings;
  std::vector<State> others;
  for (const Branch& branch : compiler->Expand(*property.schema, property.pointer)) {
    if (branch.is_string()) {
      AddString(compiler, branch, /*typed=*/!qwen || declared_string, close, &strings);
    } else if (!qwen || !declared_string) {
      others.push_back(compiler->Value(branch, close));
    }
  }
  if (qwen) {
    const std::string open = fmt::format("<parameter={}>\n", property.name);
    strings.insert(strings.end(), others.begin(), others.end());
    return builder_.Literal(open, builder_.Split(std::move(strings)));
  }
  const std::string open =
      fmt::format("{} name=\"{}\" string=\"", DsmlTagOpen(kDsmlParameter), property.name);
  return builder_.Literal(
      open, builder_.Split({builder_.Literal("true\">", builder_.Split(std::move(strings))),
                            builder_.Literal("false\">", builder_.Split(std::move(others)))}));
}

// A string, raw up to `close`. `typed`: the reader knows it for a string; else only texts that it
// cannot take for something else are written.
void CallGrammar::AddString(SchemaCompiler* compiler, const Branch& branch, bool typed, State close,
                            std::vector<State>* ways) {
  const bool qwen = family_ == TextFamily::kQwen36;
  const DfaPtr& any = qwen ? QwenValueText() : DsmlValueText();
  const DfaPtr& text = typed ? any : PlainValueText();
  if (branch.kind == Branch::Kind::kValue) {
    const std::string& value = branch.schema->get_ref<const std::string&>();
    if (text->Matches(value)) ways->push_back(builder_.Literal(value, close));
    return;
  }
  if (typed) {
    ways->push_back(compiler->StringText(branch, StringForm::kRaw, text, close));
    return;
  }
  if (branch.schema->contains("pattern")) {
    ways->push_back(compiler->StringText(branch, StringForm::kRaw, text, close));
    return;
  }
  // Not an automaton of rounds: lengths are worked into it.
  constexpr uint32_t kMost = SchemaCompiler::kMaxCount;
  const uint32_t min = CountOf(*branch.schema, "minLength", branch.pointer, kMost).value_or(0);
  const auto max = CountOf(*branch.schema, "maxLength", branch.pointer, UINT32_MAX - 1);
  if (min == 0 && !max) {
    ways->push_back(builder_.Text(text, close));
    return;
  }
  const auto lengths = CountRounds(*RawText(), min, max.value_or(Regex::kUnbounded));
  const auto both = lengths && *lengths ? Intersect(**lengths, *text) : std::nullopt;
  if (!both || *both == nullptr) {
    throw SchemaError(branch.pointer, "the lengths need too large an automaton beside other types");
  }
  ways->push_back(builder_.Text(*both, close));
}

}  // namespace mference
