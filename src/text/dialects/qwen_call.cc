#include "text/dialects/qwen_call.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "text/dialects/json_call.h"
#include "text/dialects/literal_reader.h"

namespace mference {
namespace {

constexpr std::string_view kParameterOpen = "<parameter=";
constexpr std::string_view kParameterClose = "</parameter>";
constexpr size_t kNone = std::string_view::npos;

size_t SkipSpace(std::string_view text, size_t at) {
  while (at < text.size() && IsAsciiSpace(text[at])) ++at;
  return at;
}

// What stands at a place between parameters.
struct Step {
  enum class Kind { kEnd, kParameter, kBroken };
  Kind kind = Kind::kBroken;
  size_t key_begin = 0;
  size_t key_end = 0;
  size_t value_begin = 0;
  size_t offset = 0;      // of what is broken
  const char* note = "";  // why
};

Step ReadStep(std::string_view text, size_t at) {
  at = SkipSpace(text, at);
  const std::string_view rest = text.substr(at);
  Step step;
  step.offset = at;
  if (rest.starts_with(kFunctionClose)) {
    const size_t after = SkipSpace(text, at + kFunctionClose.size());
    if (after == text.size()) {
      step.kind = Step::Kind::kEnd;
    } else {
      step.offset = after;
      step.note = "text follows </function>";
    }
    return step;
  }
  if (!rest.starts_with(kParameterOpen)) {
    step.note = rest.empty() ? "</function> is missing" : "expected <parameter=KEY> or </function>";
    return step;
  }
  step.key_begin = at + kParameterOpen.size();
  step.key_end = text.find_first_of("<>\n", step.key_begin);
  if (step.key_end == kNone || text[step.key_end] != '>' || step.key_end == step.key_begin) {
    step.note = "a parameter's key is empty or not closed by '>'";
    return step;
  }
  step.kind = Step::Kind::kParameter;
  step.value_begin = step.key_end + 1;
  if (step.value_begin < text.size() && text[step.value_begin] == '\n') ++step.value_begin;
  return step;
}

struct Parameter {
  std::string_view key;
  std::string_view value;
};

// Splits the parameters from `begin` on. Whether the text parses from a place on depends on
// nothing before it, so one pass from the last closing tag to the first decides every place, and
// a reply of closing tags costs no more than any other.
std::variant<std::vector<Parameter>, CallProblem> SplitParameters(std::string_view text,
                                                                  size_t begin) {
  std::vector<size_t> closers;
  for (size_t at = text.find(kParameterClose, begin); at != kNone;
       at = text.find(kParameterClose, at + 1)) {
    closers.push_back(at);
  }
  // next_good[i]: the first closer from i on after which the rest parses.
  std::vector<size_t> next_good(closers.size() + 1, kNone);
  const auto first_good_from = [&](size_t offset) {
    const auto first = std::lower_bound(closers.begin(), closers.end(), offset);
    return next_good[static_cast<size_t>(first - closers.begin())];
  };
  for (size_t i = closers.size(); i-- > 0;) {
    const Step step = ReadStep(text, closers[i] + kParameterClose.size());
    const bool good = step.kind == Step::Kind::kEnd || (step.kind == Step::Kind::kParameter &&
                                                        first_good_from(step.value_begin) != kNone);
    next_good[i] = good ? closers[i] : next_good[i + 1];
  }

  std::vector<Parameter> parameters;
  size_t at = begin;
  while (true) {
    const Step step = ReadStep(text, at);
    if (step.kind == Step::Kind::kEnd) return parameters;
    if (step.kind == Step::Kind::kBroken) {
      return CallProblem{.offset = step.offset, .note = step.note};
    }
    size_t end = first_good_from(step.value_begin);
    if (end == kNone) {
      // Nothing parses: walk on as a strict reader would, to say what is wrong first.
      const auto next = std::lower_bound(closers.begin(), closers.end(), step.value_begin);
      if (next == closers.end()) {
        return CallProblem{.offset = step.value_begin, .note = "</parameter> is missing"};
      }
      end = *next;
    }
    std::string_view value = text.substr(step.value_begin, end - step.value_begin);
    if (value.ends_with('\n')) value.remove_suffix(1);
    parameters.push_back(
        {.key = text.substr(step.key_begin, step.key_end - step.key_begin), .value = value});
    at = end + kParameterClose.size();
  }
}

// The JSON types that a parameter's schema allows, or nothing where it states none.
std::set<std::string> DeclaredTypes(const Json& schema) {
  std::set<std::string> types;
  if (!schema.is_object()) return types;
  const auto add = [&types](const Json& type) {
    if (type.is_string()) types.insert(type.get<std::string>());
  };
  if (const auto type = schema.find("type"); type != schema.end()) {
    add(*type);
    if (type->is_array()) std::for_each(type->begin(), type->end(), add);
    return types;
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const auto branches = schema.find(keyword);
    if (branches == schema.end() || !branches->is_array()) continue;
    for (const Json& branch : *branches) {
      if (!branch.is_object() || !branch.contains("type")) continue;
      const Json& type = branch["type"];
      add(type);
      if (type.is_array()) std::for_each(type.begin(), type.end(), add);
    }
    return types;
  }
  if (const auto values = schema.find("enum"); values != schema.end() && values->is_array()) {
    const bool strings =
        !values->empty() &&
        std::all_of(values->begin(), values->end(), [](const Json& v) { return v.is_string(); });
    if (strings) types.insert("string");
  }
  return types;
}

bool IsOfType(std::string_view json, const std::set<std::string>& types) {
  switch (json[0]) {
    case '{':
      return types.contains("object");
    case '[':
      return types.contains("array");
    case '"':
      return false;  // a quoted string is no better than the raw text
    case 't':
    case 'f':
      return types.contains("boolean");
    case 'n':
      return types.contains("null");
    default:
      return types.contains("number") ||
             (types.contains("integer") && json.find_first_of(".eE") == kNone);
  }
}

// Appends the value of one parameter. The value's nesting counts from the arguments' object.
std::optional<CallProblem> AppendValue(std::string_view raw, const std::set<std::string>& types,
                                       size_t depth, JsonText* arguments) {
  const std::string_view trimmed = TrimAsciiSpace(raw);
  const bool looks_like_json =
      !trimmed.empty() && (std::string_view("{[-tfn").find(trimmed[0]) != kNone ||
                           (trimmed[0] >= '0' && trimmed[0] <= '9'));
  const bool only_string = types.size() == 1 && types.contains("string");
  if (only_string || (types.empty() && !looks_like_json)) {
    arguments->String(raw);
    return std::nullopt;
  }
  std::string json;
  if (!types.empty() && (trimmed == "True" || trimmed == "False")) {
    json = trimmed == "True" ? "true" : "false";
  } else {
    LiteralValue value = ReadLiteral(trimmed, {.max_depth = depth - 1});
    if (value.error && value.error->too_deep) return ToProblem(*value.error, 0);
    if (!value.error) json = std::move(value.json);
  }
  if (json.empty() || (types.contains("string") && !IsOfType(json, types))) {
    arguments->String(raw);
  } else {
    arguments->Literal(json);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string_view> QwenCallName(std::string_view text) {
  const size_t begin = SkipSpace(text, 0);
  if (!text.substr(begin).starts_with(kFunctionOpen)) return std::nullopt;
  const size_t name = begin + kFunctionOpen.size();
  const size_t end = text.find_first_of(">\n", name);
  if (end == kNone || text[end] != '>') return std::nullopt;
  return text.substr(name, end - name);
}

std::variant<ParsedCall, CallProblem> ReadQwenCall(std::string_view text, const Json* parameters,
                                                   size_t depth) {
  const auto name = QwenCallName(text);
  if (!name) {
    const bool empty = TrimAsciiSpace(text).empty();
    return CallProblem{.note = empty ? "the call is empty" : "expected <function=NAME>"};
  }
  const auto body = static_cast<size_t>(name->data() - text.data()) + name->size() + 1;
  auto split = SplitParameters(text, body);
  if (auto* problem = std::get_if<CallProblem>(&split)) return std::move(*problem);
  if (!IsToolName(*name))
    return ParsedCall{.name = std::string(*name), .streamed = {}, .arguments = {}};

  static const Json kNoProperties = Json::object();
  const Json* properties = &kNoProperties;
  if (parameters != nullptr && parameters->is_object()) {
    const auto found = parameters->find("properties");
    if (found != parameters->end() && found->is_object()) properties = &*found;
  }
  JsonText arguments;
  arguments.BeginObject();
  for (const Parameter& parameter : std::get<std::vector<Parameter>>(split)) {
    arguments.Key(parameter.key);
    const auto schema = properties->find(parameter.key);
    const auto types =
        schema == properties->end() ? std::set<std::string>() : DeclaredTypes(*schema);
    if (auto problem = AppendValue(parameter.value, types, depth, &arguments)) {
      problem->offset += static_cast<size_t>(parameter.value.data() - text.data());
      return std::move(*problem);
    }
  }
  arguments.EndObject();
  const std::string resolved = arguments.Resolved();
  return ParsedCall{.name = std::string(*name), .streamed = resolved, .arguments = resolved};
}

}  // namespace mference
