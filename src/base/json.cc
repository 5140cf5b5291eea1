#include "base/json.h"

#include <cmath>

namespace mference {
namespace {

// nlohmann's parser recurses on nesting only in its destructor, but the callers' walkers do
// everywhere, so depth is checked on the raw text first. Strings are skipped, escapes included.
void CheckDepth(std::string_view text, const std::string& name, ErrorCode code, size_t max_depth) {
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == ']' || c == '}') depth -= depth > 0 ? 1 : 0;
    if ((c == '[' || c == '{') && ++depth > max_depth) {
      Fail(code, "{}: nested deeper than {} levels at byte {}", name, max_depth, i);
    }
  }
}

template <typename Document>
Document Parse(std::string_view text, const std::string& name, ErrorCode code, size_t max_depth) {
  CheckDepth(text, name, code, max_depth);
  try {
    return Document::parse(text);
  } catch (const nlohmann::json::exception& error) {
    Fail(code, "{}: {}", name, error.what());
  }
}

std::string Brief(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  constexpr size_t kMaxShown = 60;
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

}  // namespace

Json ParseJson(std::string_view text, const std::string& name, ErrorCode code, size_t max_depth) {
  return Parse<Json>(text, name, code, max_depth);
}

OrderedJson ParseOrderedJson(std::string_view text, const std::string& name, ErrorCode code,
                             size_t max_depth) {
  return Parse<OrderedJson>(text, name, code, max_depth);
}

void JsonReader::FailHere(const std::string& problem) const {
  Fail(code_, "{}: {}: {}, found {}", name_, path_, problem, Brief(*value_));
}

bool JsonReader::Has(std::string_view key) const {
  return value_->is_object() && value_->contains(key) && !value_->at(key).is_null();
}

JsonReader JsonReader::At(std::string_view key) const {
  RequireObject();
  const auto found = value_->find(key);
  if (found == value_->end()) Fail(code_, "{}: {}: '{}' is missing", name_, path_, key);
  return {*found, fmt::format("{}.{}", path_, key), name_, code_};
}

JsonReader JsonReader::At(size_t index) const {
  if (index >= ArraySize()) FailHere(fmt::format("expected at least {} elements", index + 1));
  return {(*value_)[index], fmt::format("{}[{}]", path_, index), name_, code_};
}

size_t JsonReader::ArraySize() const {
  if (!value_->is_array()) FailHere("expected an array");
  return value_->size();
}

bool JsonReader::Bool() const {
  if (!value_->is_boolean()) FailHere("expected true or false");
  return value_->get<bool>();
}

std::string JsonReader::String() const {
  if (!value_->is_string()) FailHere("expected a string");
  return value_->get<std::string>();
}

int64_t JsonReader::Int() const {
  if (value_->is_number_unsigned() && value_->get<uint64_t>() > INT64_MAX) {
    FailHere("expected a 64-bit integer");
  }
  if (value_->is_number_integer()) return value_->get<int64_t>();
  // 2^53: beyond it a double no longer says which integer was meant.
  if (value_->is_number_float()) {
    const auto number = value_->get<double>();
    if (number == std::floor(number) && std::abs(number) <= 9007199254740992.0) {
      return static_cast<int64_t>(number);
    }
  }
  FailHere("expected an integer");
}

uint64_t JsonReader::Uint() const {
  const int64_t number = Int();
  if (number < 0) FailHere("expected a non-negative integer");
  return static_cast<uint64_t>(number);
}

double JsonReader::Double() const {
  if (!value_->is_number()) FailHere("expected a number");
  return value_->get<double>();
}

std::vector<int64_t> JsonReader::IntArray() const {
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < ArraySize(); ++i) numbers.push_back(At(i).Int());
  return numbers;
}

void JsonReader::RequireObject() const {
  if (!value_->is_object()) FailHere("expected an object");
}

}  // namespace mference
