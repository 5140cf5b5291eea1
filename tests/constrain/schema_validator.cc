#include "constrain/schema_validator.h"

#include <algorithm>
#include <regex>
#include <set>
#include <vector>

namespace mference::testing_support {
namespace {

bool IsType(const OrderedJson& value, const std::string& type, const Narrowing& narrowing) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "number") return value.is_number();
  if (value.is_number_integer() || narrowing.closed) return value.is_number_integer();
  return (value.is_number() && value.get<double>() == static_cast<double>(value.get<int64_t>()));
}

bool Equal(const OrderedJson& a, const OrderedJson& b, const Narrowing& narrowing) {
  return narrowing.closed ? a.dump() == b.dump() : a == b;
}

std::wstring Wide(const std::string& text) {
  std::wstring wide;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    auto scalar = static_cast<wchar_t>(length == 1 ? lead : lead & (0xFF >> (length + 1)));
    for (size_t k = 1; k < length; ++k) scalar = (scalar << 6) | (text[i + k] & 0x3F);
    wide += scalar;
    i += length;
  }
  return wide;
}

size_t Scalars(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

const OrderedJson& Follow(const std::string& reference, const OrderedJson& document) {
  if (reference == "#") return document;
  return document.at(OrderedJson::json_pointer(reference.substr(1)));
}

// Members in the order of the schema: the described, the required, then others.
bool IsOrdered(const OrderedJson& value, const OrderedJson& schema) {
  std::vector<std::string> order;
  if (schema.contains("properties")) {
    for (const auto& [name, property] : schema["properties"].items()) order.push_back(name);
  }
  if (schema.contains("required")) {
    for (const OrderedJson& name : schema["required"]) order.push_back(name);
  }
  size_t last = 0;
  for (const auto& [name, member] : value.items()) {
    const auto at =
        static_cast<size_t>(std::find(order.begin(), order.end(), name) - order.begin());
    if (at < last) return false;
    last = at;
  }
  return true;
}

// A schema without a type is about the type that its keywords are about.
bool FitsImpliedType(const OrderedJson& value, const OrderedJson& schema) {
  for (const char* keyword : {"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"}) {
    if (schema.contains(keyword)) return true;
  }
  const auto has = [&](std::initializer_list<const char*> keywords) {
    return std::any_of(keywords.begin(), keywords.end(),
                       [&](const char* keyword) { return schema.contains(keyword); });
  };
  const bool object = has({"properties", "required", "additionalProperties"});
  const bool array = has({"items", "prefixItems", "minItems", "maxItems"});
  const bool string = has({"minLength", "maxLength", "pattern"});
  const bool number = has({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"});
  if (!object && !array && !string && !number) return true;
  return (object && value.is_object()) || (array && value.is_array()) ||
         (string && value.is_string()) || (number && value.is_number());
}

bool CheckObject(const OrderedJson& value, const OrderedJson& schema, const OrderedJson& document,
                 const Narrowing& narrowing) {
  if (narrowing.closed && !IsOrdered(value, schema)) return false;
  const OrderedJson none = OrderedJson::object();
  const OrderedJson& properties = schema.contains("properties") ? schema["properties"] : none;
  if (schema.contains("required")) {
    for (const OrderedJson& name : schema["required"]) {
      if (!value.contains(name.get<std::string>())) return false;
    }
  }
  for (const auto& [name, member] : value.items()) {
    if (properties.contains(name)) {
      if (!IsValid(member, properties[name], document, narrowing)) return false;
    } else if (schema.contains("additionalProperties")) {
      if (!IsValid(member, schema["additionalProperties"], document, narrowing)) return false;
    } else if (narrowing.closed && schema.contains("properties")) {
      const bool required = schema.contains("required") &&
                            std::find(schema["required"].begin(), schema["required"].end(),
                                      OrderedJson(name)) != schema["required"].end();
      if (!required) return false;
    }
  }
  return true;
}

bool CheckArray(const OrderedJson& value, const OrderedJson& schema, const OrderedJson& document,
                const Narrowing& narrowing) {
  if (schema.contains("minItems") && value.size() < schema["minItems"].get<size_t>()) return false;
  if (schema.contains("maxItems") && value.size() > schema["maxItems"].get<size_t>()) return false;
  const size_t prefix = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
  for (size_t i = 0; i < value.size(); ++i) {
    if (i < prefix) {
      if (!IsValid(value[i], schema["prefixItems"][i], document, narrowing)) return false;
    } else if (schema.contains("items")) {
      if (!IsValid(value[i], schema["items"], document, narrowing)) return false;
    } else if (narrowing.closed && prefix > 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool IsValid(const OrderedJson& value, const OrderedJson& schema, const OrderedJson& document,
             const Narrowing& narrowing) {
  if (schema.is_boolean()) return schema.get<bool>();
  const auto valid = [&](const OrderedJson& part) {
    return IsValid(value, part, document, narrowing);
  };
  if (schema.contains("$ref") && !valid(Follow(schema["$ref"], document))) return false;
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (!schema.contains(keyword)) continue;
    if (std::none_of(schema[keyword].begin(), schema[keyword].end(), valid)) return false;
  }
  if (schema.contains("allOf") &&
      !std::all_of(schema["allOf"].begin(), schema["allOf"].end(), valid)) {
    return false;
  }
  const auto equal = [&](const OrderedJson& given) { return Equal(value, given, narrowing); };
  if (schema.contains("const") && !equal(schema["const"])) return false;
  if (schema.contains("enum") &&
      std::none_of(schema["enum"].begin(), schema["enum"].end(), equal)) {
    return false;
  }
  if (schema.contains("type")) {
    const OrderedJson& type = schema["type"];
    const auto fits = [&](const OrderedJson& name) { return IsType(value, name, narrowing); };
    if (type.is_array() ? std::none_of(type.begin(), type.end(), fits) : !fits(type)) return false;
  }
  if (narrowing.closed && !FitsImpliedType(value, schema)) return false;
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    if (schema.contains("minLength") && Scalars(text) < schema["minLength"].get<size_t>()) {
      return false;
    }
    if (schema.contains("maxLength") && Scalars(text) > schema["maxLength"].get<size_t>()) {
      return false;
    }
    if (schema.contains("pattern") &&
        !std::regex_search(Wide(text), std::wregex(Wide(schema["pattern"].get<std::string>())))) {
      return false;
    }
  }
  if (value.is_number()) {
    const double number = value.get<double>();
    if (schema.contains("minimum") && number < schema["minimum"].get<double>()) return false;
    if (schema.contains("maximum") && number > schema["maximum"].get<double>()) return false;
    if (schema.contains("exclusiveMinimum") && number <= schema["exclusiveMinimum"].get<double>()) {
      return false;
    }
    if (schema.contains("exclusiveMaximum") && number >= schema["exclusiveMaximum"].get<double>()) {
      return false;
    }
  }
  if (value.is_object() && !CheckObject(value, schema, document, narrowing)) return false;
  return !value.is_array() || CheckArray(value, schema, document, narrowing);
}

bool HasRepeatedKeys(std::string_view text) {
  std::vector<std::set<std::string>> open;
  bool repeated = false;
  const OrderedJson::parser_callback_t look = [&](int, OrderedJson::parse_event_t event,
                                                  OrderedJson& parsed) {
    if (event == OrderedJson::parse_event_t::object_start) open.emplace_back();
    if (event == OrderedJson::parse_event_t::object_end) open.pop_back();
    if (event == OrderedJson::parse_event_t::key) {
      repeated = !open.back().insert(parsed.get<std::string>()).second || repeated;
    }
    return true;
  };
  const OrderedJson parsed_value = OrderedJson::parse(text, look);
  return repeated && !parsed_value.is_discarded();
}

}  // namespace mference::testing_support
