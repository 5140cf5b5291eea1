#include "constrain/schema_corpus.h"

#include <algorithm>

namespace mference::testing_support {
namespace {

const char* const kWritten[] = {
    R"({"type":"object"})",
    R"({"type":"object","properties":{},"additionalProperties":false})",
    R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150}},"required":["name","age"],"additionalProperties":false})",
    R"({"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"},"c":{"type":"string"},"d":{"type":"string"}},"required":["c"]})",
    R"({"type":"object","properties":{"kind":{"const":"point"},"x":{"type":"number"},"y":{"type":"number"}},"required":["kind","x","y"]})",
    R"({"enum":["red","green","blue",null,7,-1.5,true]})",
    R"({"type":["string","null"],"maxLength":12})",
    R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":4})",
    R"({"type":"array","prefixItems":[{"type":"string"},{"type":"boolean"}],"items":{"type":"null"},"maxItems":5})",
    R"({"type":"array","prefixItems":[{"type":"integer","minimum":3,"maximum":127},{"const":"z"}],"minItems":1})",
    R"({"type":"string","minLength":3,"maxLength":6})",
    R"({"type":"string","pattern":"^[A-Z]{2}-[0-9]{3,5}$"})",
    R"({"type":"string","pattern":"^(\\+[1-9])?[0-9 ]{4,9}$","minLength":5})",
    R"({"type":"string","pattern":"[a-f]x?"})",
    R"({"type":"object","properties":{"größe":{"type":"string","enum":["klein","groß","übergroß"]},"名前":{"type":"string","minLength":1,"maxLength":5},"emoji 🎉":{"type":"boolean"}},"required":["größe","名前","emoji 🎉"]})",
    R"({"type":"object","properties":{"quote \" and \\ slash/":{"type":"string","const":"tab\t\"q\" \\ end"}},"required":["quote \" and \\ slash/"]})",
    R"({"type":"number","minimum":-1.25,"maximum":3.5})",
    R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})",
    R"({"type":"integer","exclusiveMinimum":-5,"maximum":5})",
    R"({"type":"integer","minimum":999,"maximum":12345})",
    R"({"$defs":{"node":{"type":"object","properties":{"value":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["value","next"],"additionalProperties":false}},"$ref":"#/$defs/node"})",
    R"({"$defs":{"tree":{"type":"object","properties":{"name":{"type":"string","maxLength":8},"children":{"type":"array","items":{"$ref":"#/$defs/tree"}}},"required":["name","children"]}},"type":"object","properties":{"root":{"$ref":"#/$defs/tree"}},"required":["root"]})",
    R"({"definitions":{"a":{"anyOf":[{"type":"array","items":{"$ref":"#/definitions/b"}},{"type":"string"}]},"b":{"anyOf":[{"type":"object","properties":{"a":{"$ref":"#/definitions/a"}},"required":["a"]},{"type":"integer"}]}},"$ref":"#/definitions/a"})",
    R"({"anyOf":[{"type":"object","properties":{"type":{"const":"cat"},"lives":{"type":"integer","minimum":1,"maximum":9}},"required":["type","lives"]},{"type":"object","properties":{"type":{"const":"dog"},"tricks":{"type":"array","items":{"enum":["sit","roll"]}}},"required":["type","tricks"]}]})",
    R"({"oneOf":[{"type":"integer"},{"type":"boolean"},{"type":"array","items":{"$ref":"#"},"maxItems":3}]})",
    R"({"type":"object","additionalProperties":{"type":"integer"}})",
    R"({"type":"object","properties":{"id":{"type":"integer"}},"required":["id"],"additionalProperties":{"type":"string","maxLength":4}})",
    R"({"type":"object","properties":{"x":{"type":"integer"}},"required":["y","x"],"additionalProperties":true})",
    R"({"allOf":[{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}],"title":"wrapped"})",
    R"({"type":"object","title":"T","description":"D","$schema":"https://json-schema.org/draft/2020-12/schema","properties":{"when":{"type":"string","format":"date-time","default":"now","examples":["x"]}},"required":["when"]})",
    R"(true)",
    R"({"properties":{"implied":{"minLength":2}},"required":["implied"]})",
};

const char* const kNames[] = {"id", "name",  "Größe", "value",  "items", "naïve",
                              "数", "a.b-c", "$ref_", "emoji😀", "x y",   "list"};
const char* const kWords[] = {"alpha", "beta", "naïve", "日本", "a\"b", "tab\there", "😀", ""};
const char* const kPatterns[] = {"^[a-z]+$", "^[0-9]{2,4}$", "^(yes|no|maybe)$",
                                 "^\\w+@\\w+\\.(com|org)$", "^[^\"]{1,6}$"};

OrderedJson RandomSchema(Dice* dice, int depth);

OrderedJson RandomObject(Dice* dice, int depth) {
  OrderedJson schema = {{"type", "object"}};
  OrderedJson properties = OrderedJson::object();
  OrderedJson required = OrderedJson::array();
  const size_t count = dice->Below(5);
  for (size_t i = 0; i < count; ++i) {
    const std::string name = kNames[dice->Below(std::size(kNames))];
    if (properties.contains(name)) continue;
    properties[name] = RandomSchema(dice, depth + 1);
    if (dice->Chance(60)) required.push_back(name);
  }
  schema["properties"] = properties;
  if (!required.empty()) schema["required"] = required;
  if (dice->Chance(50)) {
    schema["additionalProperties"] = false;
  } else if (dice->Chance(30)) {
    schema["additionalProperties"] = OrderedJson{{"type", "integer"}};
  }
  return schema;
}

OrderedJson RandomArray(Dice* dice, int depth) {
  OrderedJson schema = {{"type", "array"}};
  size_t given = 0;
  if (dice->Chance(30)) {
    OrderedJson prefix = OrderedJson::array();
    for (given = 0; given < 1 + dice->Below(2); ++given) {
      prefix.push_back(RandomSchema(dice, depth + 1));
    }
    given = prefix.size();
    schema["prefixItems"] = prefix;
  }
  const bool items = given == 0 || dice->Chance(50);
  if (items) schema["items"] = RandomSchema(dice, depth + 1);
  const size_t min = dice->Below(3);
  if (dice->Chance(50)) schema["minItems"] = items ? min : std::min(min, given);
  if (dice->Chance(50)) schema["maxItems"] = 2 + dice->Below(4);
  return schema;
}

OrderedJson RandomNumber(Dice* dice) {
  OrderedJson schema = {{"type", dice->Chance(60) ? "integer" : "number"}};
  if (dice->Chance(40)) return schema;
  const int low = static_cast<int>(dice->Below(2000)) - 1000;
  schema[dice->Chance(70) ? "minimum" : "exclusiveMinimum"] = low;
  if (dice->Chance(70)) schema["maximum"] = low + 3 + static_cast<int>(dice->Below(5000));
  return schema;
}

OrderedJson RandomString(Dice* dice) {
  OrderedJson schema = {{"type", "string"}};
  if (dice->Chance(25)) {
    schema["pattern"] = kPatterns[dice->Below(std::size(kPatterns))];
    return schema;
  }
  if (dice->Chance(40)) schema["minLength"] = dice->Below(4);
  if (dice->Chance(50)) schema["maxLength"] = 4 + dice->Below(20);
  return schema;
}

OrderedJson RandomEnum(Dice* dice) {
  OrderedJson values = OrderedJson::array();
  for (size_t i = 0; i < 1 + dice->Below(4); ++i) {
    switch (dice->Below(4)) {
      case 0:
        values.push_back(static_cast<int>(dice->Below(2000)) - 1000);
        break;
      case 1:
        values.push_back(nullptr);
        break;
      default:
        values.push_back(kWords[dice->Below(std::size(kWords))]);
    }
  }
  return {{"enum", values}};
}

OrderedJson RandomSchema(Dice* dice, int depth) {
  const size_t kind = dice->Below(depth >= 3 ? 5 : 10);
  switch (kind) {
    case 0:
      return {{"type", "boolean"}};
    case 1:
      return RandomNumber(dice);
    case 2:
    case 3:
      return RandomString(dice);
    case 4:
      return RandomEnum(dice);
    case 5:
    case 6:
      return RandomArray(dice, depth);
    case 7: {
      OrderedJson parts = OrderedJson::array();
      for (size_t i = 0; i < 2 + dice->Below(2); ++i)
        parts.push_back(RandomSchema(dice, depth + 1));
      return {{dice->Chance(50) ? "anyOf" : "oneOf", parts}};
    }
    default:
      return RandomObject(dice, depth);
  }
}

std::string RandomText(Dice* dice) {
  std::string text;
  for (size_t i = dice->Below(4); i > 0; --i) {
    text += dice->Chance(30) ? kWords[dice->Below(std::size(kWords))]
                             : std::string(1, static_cast<char>('a' + dice->Below(26)));
  }
  return text;
}

OrderedJson RandomAnything(Dice* dice, int depth) {
  switch (dice->Below(depth > 2 ? 5 : 7)) {
    case 0:
      return nullptr;
    case 1:
      return dice->Chance(50);
    case 2:
      return static_cast<int>(dice->Below(5000)) - 1000;
    case 3:
      return static_cast<double>(dice->Below(4000)) / 8 - 100.0;
    case 4:
      return RandomText(dice);
    case 5: {
      OrderedJson array = OrderedJson::array();
      for (size_t i = dice->Below(4); i > 0; --i) array.push_back(RandomAnything(dice, depth + 1));
      return array;
    }
    default: {
      OrderedJson object = OrderedJson::object();
      for (size_t i = dice->Below(4); i > 0; --i) {
        object[std::string(1, static_cast<char>('a' + dice->Below(6)))] =
            RandomAnything(dice, depth + 1);
      }
      return object;
    }
  }
}

std::string MatchOf(const std::string& pattern, Dice* dice) {
  const std::vector<std::string> samples = {"abc",       "42",     "2024",     "yes",      "maybe",
                                            "ab@cd.com", "AB-123", "XY-99999", "+1 234 5", "123456",
                                            "fx",        "hello",  ""};
  (void)pattern;
  return samples[dice->Below(samples.size())];
}

}  // namespace

std::vector<OrderedJson> SchemaCorpus() {
  std::vector<OrderedJson> schemas;
  for (const char* text : kWritten) schemas.push_back(OrderedJson::parse(text));
  for (uint64_t seed = 1; schemas.size() < 200; ++seed) {
    Dice dice(seed);
    schemas.push_back(dice.Chance(70) ? RandomObject(&dice, 0) : RandomSchema(&dice, 0));
  }
  return schemas;
}

OrderedJson RandomValue(const OrderedJson& schema, const OrderedJson& document, size_t broken,
                        Dice* dice, int depth) {
  if (schema.is_boolean() || dice->Chance(broken)) return RandomAnything(dice, depth);
  const auto again = [&](const OrderedJson& part) {
    return RandomValue(part, document, broken, dice, depth + 1);
  };
  if (schema.contains("$ref")) {
    const auto reference = schema["$ref"].get<std::string>();
    return again(reference == "#" ? document
                                  : document.at(OrderedJson::json_pointer(reference.substr(1))));
  }
  for (const char* keyword : {"anyOf", "oneOf", "allOf"}) {
    if (!schema.contains(keyword)) continue;
    // Deep down the last way, which the recursive schemas end with.
    const size_t count = schema[keyword].size();
    return again(schema[keyword][depth > 6 ? count - 1 : dice->Below(count)]);
  }
  if (schema.contains("const")) return schema["const"];
  if (schema.contains("enum")) return schema["enum"][dice->Below(schema["enum"].size())];
  std::string type;
  if (schema.contains("type")) {
    const OrderedJson& types = schema["type"];
    type = types.is_array() ? types[dice->Below(types.size())].get<std::string>()
                            : types.get<std::string>();
  } else if (schema.contains("properties")) {
    type = "object";
  } else if (schema.contains("minLength")) {
    type = "string";
  }
  if (type == "null") return nullptr;
  if (type == "boolean") return dice->Chance(50);
  if (type == "integer" || type == "number") {
    const int low = schema.contains("minimum") ? schema["minimum"].get<int>() - 2
                    : schema.contains("exclusiveMinimum")
                        ? schema["exclusiveMinimum"].get<int>() - 2
                        : -50;
    const int value = low + static_cast<int>(dice->Below(300));
    if (type == "integer" || dice->Chance(40)) return value;
    return value + static_cast<double>(dice->Below(16)) / 16;
  }
  if (type == "string") {
    if (schema.contains("pattern")) return MatchOf(schema["pattern"], dice);
    return RandomText(dice) + RandomText(dice);
  }
  if (type == "array") {
    OrderedJson array = OrderedJson::array();
    const size_t min = schema.contains("minItems") ? schema["minItems"].get<size_t>() : 0;
    const size_t prefix = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
    size_t count = min + dice->Below(depth > 5 ? 1 : 4);
    if (schema.contains("maxItems") && !dice->Chance(10)) {
      count = std::min(count, schema["maxItems"].get<size_t>());
    }
    for (size_t i = 0; i < count; ++i) {
      if (i < prefix) {
        array.push_back(again(schema["prefixItems"][i]));
      } else if (schema.contains("items")) {
        array.push_back(again(schema["items"]));
      } else if (prefix == 0 || dice->Chance(10)) {
        array.push_back(RandomAnything(dice, depth + 1));
      }
    }
    return array;
  }
  if (type != "object") return RandomAnything(dice, depth);
  OrderedJson object = OrderedJson::object();
  const OrderedJson none = OrderedJson::array();
  const OrderedJson& required = schema.contains("required") ? schema["required"] : none;
  if (schema.contains("properties")) {
    for (const auto& [name, property] : schema["properties"].items()) {
      const bool needed =
          std::find(required.begin(), required.end(), OrderedJson(name)) != required.end();
      if (needed ? dice->Chance(97) : dice->Chance(50)) object[name] = again(property);
    }
  }
  // Undescribed required members follow the described ones, others come last.
  for (const OrderedJson& name : required) {
    if (!object.contains(name.get<std::string>()) &&
        !(schema.contains("properties") &&
          schema["properties"].contains(name.get<std::string>()))) {
      object[name.get<std::string>()] = RandomAnything(dice, depth + 1);
    }
  }
  const bool open = !schema.contains("properties") || schema.contains("additionalProperties");
  if (dice->Chance(open ? 60 : 10)) {
    const std::string name = std::string("extra") + static_cast<char>('a' + dice->Below(3));
    const bool typed =
        schema.contains("additionalProperties") && schema["additionalProperties"].is_object();
    object[name] = typed ? again(schema["additionalProperties"]) : RandomAnything(dice, depth + 1);
  }
  return object;
}

}  // namespace mference::testing_support
