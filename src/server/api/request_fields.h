// Typed access to the members of a request's body.
//
// Bodies are parsed into the template engine's values, not a JSON library's: their integers are
// exact at any size, decimals keep the digits that were written, and members keep their order, so
// schemas and arguments reach the prompt as the client wrote them.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/api_error.h"
#include "text/template/value.h"

namespace mference::server {

struct BodyLimits {
  size_t depth = 64;
  // A value takes up to some hundred bytes once parsed, however short it is written.
  size_t values = 400'000;
};

// The body as an object. Throws ApiError `invalid_json`, before parsing where it is too deep or
// has too many values.
jinja::Value ParseBody(std::string_view body, const BodyLimits& limits = {});

// Null counts as absent everywhere. Wrong types throw `invalid_json` naming the member.
class RequestFields {
 public:
  // An object; it must outlive this. `path` precedes names in errors ("stream_options").
  explicit RequestFields(const jinja::Value& object, std::string path = "");

  const jinja::Value* Find(std::string_view name);
  std::optional<bool> Bool(std::string_view name);
  std::optional<int64_t> Integer(std::string_view name);
  std::optional<double> Number(std::string_view name);
  std::optional<std::string> Text(std::string_view name);
  std::optional<RequestFields> Object(std::string_view name);

  // "stream_options.include_usage"
  std::string PathOf(std::string_view name) const;
  // Appends the paths of members that nobody has asked for, in the order of the request.
  void AddUnasked(std::vector<std::string>* paths) const;

  [[noreturn]] void FailType(std::string_view name, std::string_view expected) const;
  // 400 `code` for the member.
  template <typename... Args>
  [[noreturn]] void Refuse(const char* code, std::string_view name,
                           fmt::format_string<Args...> format, Args&&... args) const {
    throw ApiError(400, code, fmt::format(format, std::forward<Args>(args)...), PathOf(name));
  }

 private:
  const jinja::Dict* object_;
  std::string path_;
  std::set<std::string, std::less<>> asked_;
};

// A number as a double, whatever its kind; nullopt for what is no finite number.
std::optional<double> FiniteNumber(const jinja::Value& value);

// Any value as a document. Integers beyond 64 bits become doubles, the largest where they are
// larger.
OrderedJson ToJson(const jinja::Value& value);

}  // namespace mference::server
