#include "constrain/schema_keywords.h"

#include <algorithm>
#include <array>

#include "constrain/schema_compiler.h"

namespace mference {
namespace {

constexpr std::array<std::string_view, 24> kSupported = {"type",
                                                         "enum",
                                                         "const",
                                                         "properties",
                                                         "required",
                                                         "additionalProperties",
                                                         "items",
                                                         "prefixItems",
                                                         "minItems",
                                                         "maxItems",
                                                         "minLength",
                                                         "maxLength",
                                                         "pattern",
                                                         "minimum",
                                                         "maximum",
                                                         "exclusiveMinimum",
                                                         "exclusiveMaximum",
                                                         "anyOf",
                                                         "oneOf",
                                                         "allOf",
                                                         "$ref",
                                                         "$defs",
                                                         "definitions",
                                                         "format"};

// They say something about a value without restricting it. `format` is one by default (JSON Schema
// 2020-12, Validation, section 7.2.1).
constexpr std::array<std::string_view, 26> kAnnotations = {"title",
                                                           "description",
                                                           "default",
                                                           "examples",
                                                           "example",
                                                           "$schema",
                                                           "$id",
                                                           "id",
                                                           "$comment",
                                                           "deprecated",
                                                           "readOnly",
                                                           "writeOnly",
                                                           "format",
                                                           "contentEncoding",
                                                           "contentMediaType",
                                                           "$defs",
                                                           "definitions",
                                                           "nullable",
                                                           "discriminator",
                                                           "externalDocs",
                                                           "xml",
                                                           "enumNames",
                                                           "enumDescriptions",
                                                           "propertyOrdering",
                                                           "strict",
                                                           "markdownDescription"};

template <size_t N>
bool Contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool IsAnnotation(std::string_view keyword) {
  return keyword.starts_with("x-") || Contains(kAnnotations, keyword);
}

}  // namespace

void CheckKeywords(const OrderedJson& schema, const std::string& pointer) {
  if (!schema.is_object()) {
    throw SchemaError(pointer, fmt::format("expected a schema (an object or a boolean), found {}",
                                           schema.type_name()));
  }
  for (const auto& [keyword, value] : schema.items()) {
    if (IsAnnotation(keyword) || Contains(kSupported, keyword)) continue;
    throw SchemaError(PointerTo(pointer, keyword),
                      fmt::format("the keyword \"{}\" is not supported in a constrained reply; "
                                  "remove it, or check it in your program",
                                  keyword));
  }
}

std::string PointerTo(const std::string& pointer, std::string_view step) {
  std::string result = pointer + "/";
  for (const char c : step) {
    if (c == '~') {
      result += "~0";
    } else if (c == '/') {
      result += "~1";
    } else {
      result += c;
    }
  }
  return result;
}

std::string_view RestrictionBeside(const OrderedJson& schema,
                                   std::initializer_list<std::string_view> except) {
  for (const auto& [keyword, value] : schema.items()) {
    if (IsAnnotation(keyword)) continue;
    if (std::find(except.begin(), except.end(), keyword) == except.end()) return keyword;
  }
  return {};
}

const OrderedJson* MemberOf(const OrderedJson& schema, std::string_view keyword) {
  const auto found = schema.find(keyword);
  return found == schema.end() ? nullptr : &*found;
}

std::optional<uint32_t> CountOf(const OrderedJson& schema, const char* keyword,
                                const std::string& pointer, uint32_t limit) {
  const OrderedJson* value = MemberOf(schema, keyword);
  if (value == nullptr) return std::nullopt;
  const bool whole =
      value->is_number_unsigned() || (value->is_number_integer() && value->get<int64_t>() >= 0) ||
      (value->is_number_float() && value->get<double>() >= 0 &&
       value->get<double>() ==
           static_cast<double>(static_cast<uint64_t>(std::min(value->get<double>(), 1e15))));
  if (!whole) {
    throw SchemaError(PointerTo(pointer, keyword), "expected an integer that is not negative");
  }
  const double number = value->get<double>();
  if (number > static_cast<double>(limit)) {
    throw SchemaError(PointerTo(pointer, keyword),
                      fmt::format("at most {} is supported in a constrained reply", limit));
  }
  return static_cast<uint32_t>(number);
}

}  // namespace mference
