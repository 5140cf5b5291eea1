// What a schema's grammar accepts, against an independent validator; and what is refused.
#include <gtest/gtest.h>

#include "constrain/constraint_testing.h"
#include "constrain/schema_corpus.h"
#include "constrain/schema_validator.h"

namespace mference {
namespace {

using testing_support::Accepts;
using testing_support::Dice;
using testing_support::IsValid;
using testing_support::RandomValue;
using testing_support::SchemaCorpus;
using testing_support::SchemaGrammar;

OrderedJson Parse(const char* text) { return OrderedJson::parse(text); }

TEST(Schema, AcceptsExactlyTheValidValuesOfARandomCorpus) {
  size_t valid_count = 0;
  size_t count = 0;
  uint64_t seed = 0;
  for (const OrderedJson& schema : SchemaCorpus()) {
    const auto grammar = SchemaGrammar(schema);
    Dice dice(++seed);
    for (int i = 0; i < 40; ++i) {
      const OrderedJson value = RandomValue(schema, schema, i < 20 ? 0 : 5, &dice);
      const bool valid = IsValid(value, schema, schema);
      ++count;
      valid_count += valid ? 1 : 0;
      ASSERT_EQ(Accepts(*grammar, value.dump()), valid)
          << "schema " << schema.dump() << "\nvalue " << value.dump();
      // Pretty-printed by an independent printer.
      ASSERT_EQ(Accepts(*grammar, value.dump(2)),
                valid && value == OrderedJson::parse(value.dump()))
          << "schema " << schema.dump() << "\nvalue " << value.dump(2);
    }
  }
  // The corpus must try both outcomes.
  EXPECT_GT(valid_count, count / 4);
  EXPECT_LT(valid_count, count * 9 / 10);
}

TEST(Schema, TextThatIsNoJsonIsNeverAccepted) {
  const auto grammar =
      SchemaGrammar(Parse(R"({"type":"object","properties":{"a":{"type":"array"}}})"));
  for (const char* bad :
       {"", "{", "}", "{}{}", "{} ", " {}", "{,}", "{\"a\":}", "{\"a\":[}", "{\"a\":[1,]}",
        "{\"a\" :[]}", "{\"a\":[]}x", "{'a':[]}", "{\"a\":[1 ,2]}", "{\"a\":[\"\n\"]}",
        "{\"a\":[],}", "{\"a\":[],\"a\":[]}"}) {
    EXPECT_FALSE(Accepts(*grammar, bad)) << bad;
  }
  EXPECT_TRUE(Accepts(*grammar, "{\n  \"a\": [\n    1,\n    {\n    }\n  ]\n}"));
}

TEST(Schema, FreeKeysNeverRepeat) {
  const auto any = SchemaGrammar(AnyObjectSchema());
  EXPECT_TRUE(Accepts(*any, R"({"a":1,"b":{"a":2,"b":3},"ab":4})"));
  EXPECT_FALSE(Accepts(*any, R"({"a":1,"b":2,"a":3})"));
  EXPECT_FALSE(Accepts(*any, R"({"b":{"x":1,"x":2}})"));
  EXPECT_TRUE(Accepts(*any, R"({"b":{"x":1},"c":{"x":2}})"));
  EXPECT_TRUE(Accepts(*any, R"({"a":{"k":[{"a":1},{"a":2}]},"":null})"));
  const auto mixed = SchemaGrammar(Parse(
      R"({"type":"object","properties":{"id":{"type":"integer"}},"additionalProperties":true})"));
  EXPECT_TRUE(Accepts(*mixed, R"({"id":1,"ids":"x"})"));
  EXPECT_TRUE(Accepts(*mixed, R"({"i":1})"));
  EXPECT_FALSE(Accepts(*mixed, R"({"x":1,"id":2})"));  // out of order
  EXPECT_FALSE(Accepts(*mixed, R"({"id":1,"id":2})"));
  EXPECT_FALSE(Accepts(*mixed, R"({"id":"one"})"));  // not by way of the others
}

TEST(Schema, NestsToTheBound) {
  const auto grammar = SchemaGrammar(Parse(R"({"type":"array","items":{"$ref":"#"}})"));
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(Accepts(*grammar, nested(64)));
  EXPECT_FALSE(Accepts(*grammar, nested(65)));
  EXPECT_FALSE(Accepts(*grammar, std::string(100000, '[')));
}

TEST(Schema, AnnotationsAreIgnored) {
  const auto grammar = SchemaGrammar(Parse(R"({"title":"t","description":"d","type":"integer",
      "default":3,"examples":[1],"$comment":"c","format":"int32","deprecated":true,"x-order":1})"));
  EXPECT_TRUE(Accepts(*grammar, "42"));
}

TEST(Schema, RefusesEveryOtherKeywordByNameAndPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type":"object","properties":{"a":{"not":{}}}})", "#/properties/a/not"},
      {R"({"multipleOf":2})", "#/multipleOf"},
      {R"({"type":"array","uniqueItems":true})", "#/uniqueItems"},
      {R"({"type":"array","contains":{}})", "#/contains"},
      {R"({"type":"object","patternProperties":{"x":{}}})", "#/patternProperties"},
      {R"({"type":"object","propertyNames":{}})", "#/propertyNames"},
      {R"({"type":"object","minProperties":1})", "#/minProperties"},
      {R"({"if":{},"then":{}})", "#/if"},
      {R"({"type":"array","items":{"anyOf":[{"type":"null"},{"dependentRequired":{}}]}})",
       "#/items/anyOf/1/dependentRequired"},
      {R"({"$defs":{"a/b":{"minLenght":1}},"$ref":"#/$defs/a~1b"})", "#/$defs/a~1b/minLenght"},
      {R"({"anyOf":[{}],"oneOf":[{}]})", "#/oneOf"},
      {R"({"allOf":[{"type":"object"},{"type":"object"}]})", "#/allOf"},
      {R"({"$ref":"#/$defs/x","type":"string","$defs":{"x":{}}})", "#/type"},
      {R"({"enum":["a"],"minLength":1})", "#/minLength"},
      {R"({"$ref":"http://example.com/x"})", "#/$ref"},
      {R"({"$ref":"#/$defs/missing"})", "#/$ref"},
      {R"({"$ref":"#"})", "#/$ref"},
      {R"({"anyOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"anyOf":[{"$ref":"#"}]}}})",
       "#/anyOf/0/$ref"},
      {R"({"type":"text"})", "#/type"},
      {R"({"type":[]})", "#/type"},
      {R"({"type":"string","minLength":-1})", "#/minLength"},
      {R"({"type":"string","minLength":1.5})", "#/minLength"},
      {R"~({"type":"string","pattern":"a(?=b)"})~", "#/pattern"},
      {R"({"type":"string","pattern":"^a$","minLength":2})", "#/pattern"},
      {R"({"type":"string","minLength":3,"maxLength":2})", "#"},
      {R"({"type":"array","minItems":3,"maxItems":2})", "#"},
      {R"({"type":"array","minItems":3,"items":false})", "#"},
      {R"({"type":"array","minItems":100000})", "#/minItems"},
      {R"({"type":"integer","minimum":"3"})", "#/minimum"},
      {R"({"type":"integer","exclusiveMinimum":true})", "#/exclusiveMinimum"},
      {R"({"type":"integer","minimum":5,"maximum":4})", "#"},
      {R"({"type":"integer","exclusiveMinimum":5,"exclusiveMaximum":6})", "#"},
      {R"({"type":"object","properties":[]})", "#/properties"},
      {R"({"type":"object","properties":{"a":7}})", "#/properties/a"},
      {R"({"type":"object","required":["x"],"additionalProperties":false})", "#/required"},
      {R"({"type":"object","required":"x"})", "#/required"},
      {R"({"enum":[]})", "#/enum"},
      {R"({"anyOf":[]})", "#/anyOf"},
      {R"([])", "#"},
  };
  for (const auto& [schema, pointer] : cases) {
    try {
      SchemaGrammar(Parse(schema));
      ADD_FAILURE() << schema << " was accepted";
    } catch (const SchemaError& error) {
      EXPECT_EQ(error.code(), ErrorCode::kSchemaUnsupported);
      const std::string expected = pointer;
      // References are followed by their own pointer.
      const bool found = error.pointer() == expected ||
                         (expected == "#/anyOf/0/$ref" && error.pointer().ends_with("/$ref"));
      EXPECT_TRUE(found) << schema << ": " << error.what();
      EXPECT_NE(std::string(error.what()).find(error.pointer()), std::string::npos);
    }
  }
}

TEST(Schema, RefusesWhatNothingSatisfies) {
  EXPECT_THROW(SchemaGrammar(false), SchemaError);
  EXPECT_THROW(
      SchemaGrammar(Parse(R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})")),
      SchemaError);
  EXPECT_THROW(SchemaGrammar(Parse(R"({"type":"string","enum":[1,2]})")), SchemaError);
  // But not where another way is left.
  const auto grammar =
      SchemaGrammar(Parse(R"({"type":"object","properties":{"a":{"$ref":"#"},"b":false}})"));
  EXPECT_TRUE(Accepts(*grammar, R"({"a":{"a":{}}})"));
  EXPECT_FALSE(Accepts(*grammar, R"({"b":1})"));
}

TEST(Schema, TakesManyValues) {
  OrderedJson schema = {{"enum", OrderedJson::array()}};
  for (int i = 0; i < 20'000; ++i) schema["enum"].push_back("value " + std::to_string(i));
  // Each begins with the one before it.
  for (int length = 1; length < 300; ++length) schema["enum"].push_back(std::string(length, 'x'));
  const auto grammar = SchemaGrammar(schema);
  for (const int i : {0, 1, 999, 5'000, 19'999}) {
    EXPECT_TRUE(Accepts(*grammar, "\"value " + std::to_string(i) + "\""));
  }
  for (const int length : {1, 63, 64, 65, 299}) {
    EXPECT_TRUE(Accepts(*grammar, "\"" + std::string(static_cast<size_t>(length), 'x') + "\""));
  }
  EXPECT_FALSE(Accepts(*grammar, "\"value 20000\""));
  EXPECT_FALSE(Accepts(*grammar, "\"value \""));
  EXPECT_FALSE(Accepts(*grammar, "\"" + std::string(300, 'x') + "\""));
}

TEST(Schema, BoundsWhatASchemaCanBlowUpTo) {
  // Every definition uses the one before twice.
  OrderedJson bomb = {{"$defs", {{"d0", {{"type", "string"}}}}}};
  for (int i = 1; i < 40; ++i) {
    const OrderedJson before = {{"$ref", "#/$defs/d" + std::to_string(i - 1)}};
    bomb["$defs"]["d" + std::to_string(i)] = {{"anyOf", {before, before}}};
  }
  bomb["$ref"] = "#/$defs/d39";
  EXPECT_THROW(SchemaGrammar(bomb), SchemaError);
  EXPECT_THROW(SchemaGrammar(Parse(R"({"type":"string","pattern":"^(a|b)*a(a|b){18}$"})")),
               SchemaError);
  // Each by itself is small enough.
  OrderedJson patterns = {{"properties", OrderedJson::object()}};
  for (int i = 0; i < 20; ++i) {
    patterns["properties"]["p" + std::to_string(i)] = {
        {"type", "string"}, {"pattern", "^a*$"}, {"maxLength", 9'000}};
  }
  EXPECT_THROW(SchemaGrammar(patterns), SchemaError);
  OrderedJson members = {{"properties", OrderedJson::object()}};
  for (int i = 0; i < 3'000; ++i) {
    members["properties"]["m" + std::to_string(i)] = {{"type", "null"}};
  }
  EXPECT_THROW(SchemaGrammar(members), SchemaError);
}

}  // namespace
}  // namespace mference
