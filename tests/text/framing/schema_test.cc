// Schema normalisation for Gemma, rule by rule (server contract A.5.2).
#include "text/framing/schema.h"

#include <gtest/gtest.h>

#include <string>

#include "text/template/python_text.h"

namespace mference {
namespace {

std::string Normalised(const std::string& json) {
  const jinja::Value once = NormaliseSchemaForGemma(jinja::ParseJsonValue(
      json, "schema", ErrorCode::kInternal, jinja::NumberStyle::kPython, jinja::Origin::kData));
  const std::string text = jinja::ToJson(once, {}).text();
  EXPECT_EQ(jinja::ToJson(NormaliseSchemaForGemma(once), {}).text(), text) << "not idempotent";
  return text;
}

TEST(NormaliseSchema, LeavesPlainSchemasAlone) {
  const std::string plain =
      R"({"type": "object", "properties": {"b": {"type": "string", "enum": ["x"]}, "a": {"type": "integer"}}, "required": ["b"]})";
  EXPECT_EQ(Normalised(plain), plain);
}

TEST(NormaliseSchema, TypeArraysBecomeTheFirstConcreteType) {
  EXPECT_EQ(Normalised(R"({"type": ["null", "integer"], "minimum": 1})"),
            R"({"type": "integer", "minimum": 1})");
  EXPECT_EQ(Normalised(R"({"type": ["null"]})"), R"({"type": "string"})");
}

TEST(NormaliseSchema, UnionsBecomeTheirFirstConcreteBranch) {
  EXPECT_EQ(Normalised(R"({"description": "d", "anyOf": [{"type": "null"}, {"type": "integer"}]})"),
            R"({"type": "integer", "description": "d"})");
  EXPECT_EQ(
      Normalised(R"({"oneOf": [{"type": "number", "description": "own"}], "description": "d"})"),
      R"({"type": "number", "description": "own"})");
  EXPECT_EQ(Normalised(R"({"anyOf": [{"type": "null"}]})"), R"({"type": "null"})");
  EXPECT_EQ(Normalised(R"({"anyOf": []})"), R"({"type": "string"})");
  EXPECT_EQ(Normalised(R"({"anyOf": [{"anyOf": [{"type": "null"}, {"type": "boolean"}]}]})"),
            R"({"type": "boolean"})");
}

TEST(NormaliseSchema, AllOfIsMergedAndPropertiesUnited) {
  EXPECT_EQ(
      Normalised(
          R"({"allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "integer"}}, "type": "object"}], "description": "d"})"),
      R"({"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "type": "object", "description": "d"})");
}

TEST(NormaliseSchema, MissingTypesAreFilledIn) {
  EXPECT_EQ(Normalised("{}"), R"({"type": "string"})");
  EXPECT_EQ(Normalised(R"({"properties": {"a": true}})"),
            R"({"properties": {"a": {"type": "string"}}, "type": "object"})");
  EXPECT_EQ(Normalised(R"({"type": "array", "items": {"type": ["string", "null"]}})"),
            R"({"type": "array", "items": {"type": "string"}})");
  EXPECT_EQ(
      Normalised(R"({"type": "array", "items": [{}, {"type": "object"}]})"),
      R"({"type": "array", "items": [{"type": "string"}, {"type": "object", "properties": {}}]})");
}

TEST(NormaliseSchema, ObjectsGetProperties) {
  EXPECT_EQ(Normalised(R"({"type": "object", "additionalProperties": false})"),
            R"({"type": "object", "additionalProperties": false, "properties": {}})");
}

}  // namespace
}  // namespace mference
