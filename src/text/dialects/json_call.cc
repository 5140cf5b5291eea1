#include "text/dialects/json_call.h"

#include <algorithm>

namespace mference {

CallProblem ToProblem(const LiteralError& error, size_t offset) {
  return {.failure_class =
              error.too_deep ? CallFailure::Class::kTooDeep : CallFailure::Class::kBadSyntax,
          .offset = offset + error.offset,
          .note = error.note};
}

JsonCallReader::JsonCallReader(const JsonCallForm& form)
    : form_(form),
      reader_(LiteralSyntax{
          .gemma = false, .unique_keys = form.unique_keys, .max_depth = form.depth + 1}) {
}  // the call's own object

bool JsonCallReader::IsArgumentKey(std::string_view key) const {
  return std::find(form_.argument_keys.begin(), form_.argument_keys.end(), key) !=
         form_.argument_keys.end();
}

std::optional<std::string> JsonCallReader::Name() const {
  constexpr size_t kMaxQuotedBytes = 512;  // six bytes an escaped character; no tool's is longer
  const std::string& json = reader_.json().text();
  for (const auto& member : reader_.members()) {
    if (member.key != "name" || member.end == std::string::npos) continue;
    if (json[member.begin] != '"' || member.end - member.begin > kMaxQuotedBytes) {
      return std::nullopt;
    }
    return DecodeJsonString(std::string_view(json).substr(member.begin, member.end - member.begin));
  }
  return std::nullopt;
}

std::string_view JsonCallReader::ArgumentsSoFar() const {
  const std::string_view json = reader_.json().text();
  for (const auto& member : reader_.members()) {
    if (!IsArgumentKey(member.key)) continue;
    const std::string_view value =
        json.substr(member.begin, std::min(member.end, json.size()) - member.begin);
    return value.starts_with('{') ? value : std::string_view();
  }
  return {};
}

std::variant<ParsedCall, CallProblem> JsonCallReader::Finish() {
  const auto error = reader_.Finish();
  if (error && !error->too_deep) return ToProblem(*error, 0);
  const std::string_view json = reader_.json().text();
  if (!json.starts_with('{')) return CallProblem{.note = "the call is not a JSON object"};

  const LiteralReader::Member* name = nullptr;
  const LiteralReader::Member* arguments = nullptr;
  for (const auto& member : reader_.members()) {
    if (member.key == "name") {
      name = &member;
    } else if (IsArgumentKey(member.key)) {
      if (arguments != nullptr && arguments->key != member.key) {
        return CallProblem{.note = "the call has its arguments twice, under two names"};
      }
      arguments = &member;
    } else {
      return CallProblem{.note = "the call has a member besides its name and arguments"};
    }
  }
  if (name == nullptr) return CallProblem{.note = "the call has no name"};
  if (arguments == nullptr) return CallProblem{.note = "the call has no arguments"};
  if (json[name->begin] != '"') return CallProblem{.note = "the name is not a string"};
  if (error) return ToProblem(*error, 0);

  ParsedCall call;
  call.name = DecodeJsonString(json.substr(name->begin, name->end - name->begin));
  const std::string_view value = json.substr(arguments->begin, arguments->end - arguments->begin);
  if (form_.string_arguments && value.starts_with('"')) {
    return ReadStringArguments(std::move(call), value);
  }
  if (!value.starts_with('{')) return CallProblem{.note = "the arguments are not an object"};
  call.streamed = std::string(value);
  call.arguments = reader_.json().Resolved(arguments->begin, arguments->end);
  return call;
}

std::variant<ParsedCall, CallProblem> JsonCallReader::ReadStringArguments(
    ParsedCall call, std::string_view quoted) const {
  LiteralValue value =
      ReadLiteral(DecodeJsonString(quoted),
                  {.gemma = false, .unique_keys = form_.unique_keys, .max_depth = form_.depth});
  if (value.error) {
    CallProblem problem = ToProblem(*value.error, 0);
    problem.offset = 0;  // a place in the decoded string is none in the reply
    problem.note = "in the arguments' string: " + problem.note;
    return problem;
  }
  if (!value.json.starts_with('{')) {
    return CallProblem{.note = "the arguments are a string that holds no object"};
  }
  call.streamed = value.json;
  call.arguments = std::move(value.json);
  return call;
}

}  // namespace mference
