#include "server/api/request_fields.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/template/operators.h"
#include "text/template/python_text.h"
#include "text/template/template.h"

namespace mference::server {
namespace {

using jinja::Value;

ApiError InvalidJson(const std::string& message, std::string param = "") {
  return {400, "invalid_json", message, std::move(param)};
}

// Depth and number of values, from the text alone.
void CheckShape(std::string_view text, const BodyLimits& limits) {
  size_t depth = 0;
  size_t values = 1;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == ',' || c == '[' || c == '{') ++values;
    if (c == ']' || c == '}') depth -= depth > 0 ? 1 : 0;
    if ((c == '[' || c == '{') && ++depth > limits.depth) {
      throw InvalidJson(fmt::format("the body is nested deeper than {} levels", limits.depth));
    }
  }
  if (values > limits.values) {
    throw InvalidJson(fmt::format("the body has more than {} values", limits.values));
  }
}

}  // namespace

Value ParseBody(std::string_view body, const BodyLimits& limits) {
  CheckShape(body, limits);
  Value parsed;
  try {
    parsed =
        jinja::ParseJsonValue(body, "the body", ErrorCode::kInvalidArgument,
                              jinja::NumberStyle::kAsWritten, jinja::Origin::kData, limits.depth);
  } catch (const Error& error) {
    throw InvalidJson(error.what());
  }
  if (!parsed.IsDict()) throw InvalidJson("the body must be a JSON object");
  return parsed;
}

RequestFields::RequestFields(const Value& object, std::string path)
    : object_(&object.dict()), path_(std::move(path)) {}

const Value* RequestFields::Find(std::string_view name) {
  asked_.emplace(name);
  const Value* member = object_->Find(name);
  return member == nullptr || member->IsNone() ? nullptr : member;
}

std::optional<bool> RequestFields::Bool(std::string_view name) {
  const Value* member = Find(name);
  if (member == nullptr) return std::nullopt;
  if (!member->IsBool()) FailType(name, "true or false");
  return member->boolean();
}

std::optional<int64_t> RequestFields::Integer(std::string_view name) {
  const Value* member = Find(name);
  if (member == nullptr) return std::nullopt;
  if (member->IsSmallInt()) return member->small_int();
  // Clients in languages with one number type write 64.0.
  constexpr double kExact = 9007199254740992.0;  // 2^53
  const std::optional<double> number = FiniteNumber(*member);
  if (!member->IsFloat() || !number || std::floor(*number) != *number ||
      std::abs(*number) > kExact) {
    FailType(name, "a 64-bit integer");
  }
  return static_cast<int64_t>(*number);
}

std::optional<double> RequestFields::Number(std::string_view name) {
  const Value* member = Find(name);
  if (member == nullptr) return std::nullopt;
  const std::optional<double> number = FiniteNumber(*member);
  if (!number) FailType(name, "a number");
  return number;
}

std::optional<std::string> RequestFields::Text(std::string_view name) {
  const Value* member = Find(name);
  if (member == nullptr) return std::nullopt;
  if (!member->IsString()) FailType(name, "a string");
  return member->text();
}

std::optional<RequestFields> RequestFields::Object(std::string_view name) {
  const Value* member = Find(name);
  if (member == nullptr) return std::nullopt;
  if (!member->IsDict()) FailType(name, "an object");
  return RequestFields(*member, PathOf(name));
}

std::string RequestFields::PathOf(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

void RequestFields::AddUnasked(std::vector<std::string>* paths) const {
  for (const jinja::Dict::Entry& entry : object_->entries()) {
    if (entry.key.IsString() && asked_.find(entry.key.text()) == asked_.end()) {
      paths->push_back(PathOf(entry.key.text()));
    }
  }
}

void RequestFields::FailType(std::string_view name, std::string_view expected) const {
  const std::string path = PathOf(name);
  throw InvalidJson(fmt::format("{} must be {}", path, expected), path);
}

std::optional<double> FiniteNumber(const Value& value) {
  if (!value.IsInt() && !value.IsFloat()) return std::nullopt;
  try {
    const double number = jinja::ToDouble(value);
    return std::isfinite(number) ? std::optional(number) : std::nullopt;
  } catch (const jinja::TemplateError&) {
    return std::nullopt;  // an integer of more than 308 digits
  }
}

OrderedJson ToJson(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kBool:
      return value.boolean();
    case Value::Kind::kInt:
      if (value.IsSmallInt()) return value.small_int();
      [[fallthrough]];
    case Value::Kind::kFloat:
      if (const std::optional<double> number = FiniteNumber(value)) return *number;
      return std::copysign(std::numeric_limits<double>::max(),
                           jinja::ToJson(value, {}).text().starts_with('-') ? -1.0 : 1.0);
    case Value::Kind::kString:
      return value.text();
    case Value::Kind::kList: {
      OrderedJson list = OrderedJson::array();
      for (const Value& item : value.items()) list.push_back(ToJson(item));
      return list;
    }
    case Value::Kind::kDict: {
      OrderedJson object = OrderedJson::object();
      for (const jinja::Dict::Entry& entry : value.dict().entries()) {
        object[entry.key.text()] = ToJson(entry.value);
      }
      return object;
    }
    default:
      return nullptr;
  }
}

}  // namespace mference::server
