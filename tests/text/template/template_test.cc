// The template engine beyond the goldens: bounds, line numbers, provenance, exact numbers. Expected
// texts are Jinja2 3.1's.
#include "text/template/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace mference::jinja {
namespace {

Value Context(const std::string& json) {
  return ParseJsonValue(json, "context", ErrorCode::kInternal, NumberStyle::kPython, Origin::kData,
                        150);
}

TracedString RenderTraced(const std::string& source, const std::string& context = "{}",
                          RenderLimits limits = {}) {
  RenderOptions options;
  options.limits = limits;
  return Template::Parse(source, "test").Render(Context(context), options);
}

std::string Render(const std::string& source, const std::string& context = "{}") {
  return RenderTraced(source, context).text();
}

// The text with data in square brackets.
std::string Marked(const std::string& source, const std::string& context) {
  const TracedString traced = RenderTraced(source, context);
  std::string out;
  traced.ForEachRun([&](size_t begin, size_t end, Origin origin) {
    const std::string piece = traced.text().substr(begin, end - begin);
    out += origin == Origin::kData ? "[" + piece + "]" : piece;
  });
  return out;
}

TemplateError Failure(const std::string& source, const std::string& context = "{}",
                      RenderLimits limits = {}) {
  try {
    const TracedString text = RenderTraced(source, context, limits);
    ADD_FAILURE() << "rendered: " << text.text().substr(0, 200);
  } catch (const TemplateError& error) {
    return error;
  }
  return {TemplateErrorKind::kRuntime, "none"};
}

// ---- errors say where

TEST(TemplateErrors, SyntaxErrorsHaveTheirLine) {
  const TemplateError error = Failure("one\ntwo\n{{ 1 + }}\n");
  EXPECT_EQ(error.kind(), TemplateErrorKind::kSyntax);
  EXPECT_EQ(error.code(), ErrorCode::kTemplateInvalid);
  EXPECT_EQ(error.line(), 3);
  EXPECT_THAT(error.what(), testing::HasSubstr("test, line 3: "));
}

TEST(TemplateErrors, LinesCountThroughCommentsRawBlocksAndStrippedSpace) {
  EXPECT_EQ(Failure("{#\n\n#}\n{% raw %}\n\n{% endraw %}\n\n\n{%- bogus %}").line(), 9);
  EXPECT_EQ(Failure("{{ 'a\nb' }}\n{% endfor %}").line(), 3);
  EXPECT_EQ(Failure("a\r\nb\rc\n{{ ? }}").line(), 4);
}

TEST(TemplateErrors, RuntimeErrorsHaveTheirLine) {
  const TemplateError error =
      Failure("{% set x = none %}\n\n{% if true %}\n{{ x.a.b }}\n{% endif %}");
  EXPECT_EQ(error.kind(), TemplateErrorKind::kUndefined);
  EXPECT_EQ(error.code(), ErrorCode::kMessagesInvalid);
  EXPECT_EQ(error.line(), 4);
}

TEST(TemplateErrors, RaiseExceptionGivesItsOwnMessage) {
  const TemplateError error = Failure("\n{{ raise_exception('No ' ~ x) }}", R"({"x": "tools"})");
  EXPECT_EQ(error.kind(), TemplateErrorKind::kRaise);
  EXPECT_EQ(error.code(), ErrorCode::kMessagesInvalid);
  EXPECT_EQ(error.detail(), "No tools");
  EXPECT_EQ(error.line(), 2);
}

TEST(TemplateErrors, MalformedTemplates) {
  for (const char* source : {"{{",
                             "{%",
                             "{#",
                             "{{ x",
                             "{% if",
                             "{% if x %}",
                             "{% for %}",
                             "{% for x in y",
                             "{{ (1 }}",
                             "{{ [1 }}",
                             "{{ {1: } }}",
                             "{{ 'x }}",
                             "{{ a.. }}",
                             "{{ a[::, 1] }}",
                             "{{ a[1, ::2] }}",
                             "{{ x | }}",
                             "{{ x is }}",
                             "{% raw %}",
                             "{% set %}",
                             "{% macro %}",
                             "{% macro m( %}",
                             "{% call x %}{% endcall %}",
                             "{% else %}",
                             "{{ f(a=1, 2) }}",
                             "{{ 1 if }}",
                             "{{ \"\\ud800\" }}",
                             "{{ '\\N{DASH}' }}",
                             "{% filter %}{% endfilter %}",
                             "{% with a %}{% endwith %}",
                             "{% for loop in x %}{% endfor %}",
                             "{{ x | nosuch }}",
                             "{{ x is nosuch }}",
                             "\xff",
                             "{{ '\xc3' }}"}) {
    SCOPED_TRACE(source);
    EXPECT_EQ(Failure(source).kind(), TemplateErrorKind::kSyntax);
  }
}

// ---- bounds

TEST(TemplateLimits, RangesAreBounded) {
  EXPECT_EQ(Failure("{% for i in range(1000000000) %}{% endfor %}").kind(),
            TemplateErrorKind::kRuntime);
}

TEST(TemplateLimits, NestedLoopsStop) {
  const std::string loops =
      "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}"
      "{% endfor %}{% endfor %}{% endfor %}";
  RenderLimits limits;
  limits.max_steps = 200'000;
  const TemplateError error = Failure(loops, "{}", limits);
  EXPECT_EQ(error.kind(), TemplateErrorKind::kLimit);
  EXPECT_EQ(error.code(), ErrorCode::kTemplateInvalid);
}

TEST(TemplateLimits, OutputIsBounded) {
  RenderLimits limits;
  limits.max_output_bytes = 1000;
  EXPECT_EQ(Failure("{% for i in range(2000) %}x{% endfor %}", "{}", limits).kind(),
            TemplateErrorKind::kLimit);
}

TEST(TemplateLimits, WidthsMayBeNegative) {
  EXPECT_EQ(Render("{% set least = -9223372036854775807 - 1 %}"
                   "{{ 'ab'.center(least) }}{{ 'ab'.ljust(least) }}{{ 'ab' | center(least) }}"
                   "{{ '-7'.zfill(least) }}{{ 'a\tb'.expandtabs(-9) }}"),
            "ababab-7ab");
}

TEST(TemplateLimits, MemoryIsBounded) {
  EXPECT_EQ(Failure("{{ 'x' * 10000000000 }}").kind(), TemplateErrorKind::kLimit);
  EXPECT_EQ(Failure("{{ [1] * 10000000000 }}").kind(), TemplateErrorKind::kLimit);
  EXPECT_EQ(Failure("{{ 10 ** 100000 }}").kind(), TemplateErrorKind::kLimit);
  EXPECT_EQ(Failure("{{ '%99999999d' % 1 }}").kind(), TemplateErrorKind::kLimit);
  EXPECT_EQ(Failure("{{ 'x'.center(99999999) }}").kind(), TemplateErrorKind::kLimit);
  RenderLimits limits;
  limits.max_bytes = 1 << 20;
  EXPECT_EQ(Failure("{% set ns = namespace(s='0123456789') %}{% for i in range(100) %}"
                    "{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
                    "{}", limits)
                .kind(),
            TemplateErrorKind::kLimit);
}

TEST(TemplateLimits, SharedPartsDoNotMultiplyWork) {
  // Each level refers to the one below twice: a walk would take 2^60 steps.
  const std::string build =
      "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}"
      "{% set ns.b = [ns.b, ns.b] %}{% endfor %}";
  for (const char* use : {"{{ ns.a == ns.b }}", "{{ ns.a | tojson }}", "{{ ns.a }}",
                          "{{ ns.a in [ns.b] }}", "{{ [ns.a, ns.b] | sort }}"}) {
    SCOPED_TRACE(use);
    EXPECT_EQ(Failure(build + use).kind(), TemplateErrorKind::kLimit);
  }
}

TEST(TemplateLimits, NestingIsBounded) {
  const auto repeat = [](const std::string& text, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += text;
    return out;
  };
  EXPECT_EQ(Failure("{{ " + repeat("(", 100'000) + "1" + repeat(")", 100'000) + " }}").kind(),
            TemplateErrorKind::kSyntax);
  EXPECT_EQ(Failure("{{ " + repeat("[", 5000)).kind(), TemplateErrorKind::kSyntax);
  EXPECT_EQ(Failure("{{ " + repeat("not ", 100'000) + "1 }}").kind(), TemplateErrorKind::kSyntax);
  EXPECT_EQ(Failure("{{ " + repeat("-", 100'000) + "1 }}").kind(), TemplateErrorKind::kSyntax);
  EXPECT_EQ(Failure("{{ 1" + repeat(" + 1", 100'000) + " }}").kind(), TemplateErrorKind::kSyntax);
  EXPECT_EQ(Failure("{{ x" + repeat(".x", 100'000) + " }}").kind(), TemplateErrorKind::kSyntax);
  EXPECT_EQ(Failure("{{ x" + repeat("|e", 100'000) + " }}").kind(), TemplateErrorKind::kSyntax);
  EXPECT_EQ(Failure(repeat("{% if 1 %}", 50'000)).kind(), TemplateErrorKind::kSyntax);
  EXPECT_EQ(Failure("{% for x in (" + repeat("(", 50'000) + " %}").kind(),
            TemplateErrorKind::kSyntax);
  EXPECT_EQ(Failure("{% set " + repeat("(", 50'000) + "a").kind(), TemplateErrorKind::kSyntax);
  EXPECT_EQ(Failure("{% set ns = namespace(l=[]) %}{% for i in range(99999) %}"
                    "{% set ns.l = [ns.l] %}{% endfor %}")
                .kind(),
            TemplateErrorKind::kLimit);
}

TEST(TemplateLimits, RecursionIsBounded) {
  EXPECT_EQ(Failure("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").kind(),
            TemplateErrorKind::kLimit);
  EXPECT_EQ(Failure("{% macro f(x=f()) %}{% endmacro %}{{ f() }}").kind(),
            TemplateErrorKind::kLimit);
  EXPECT_EQ(Failure("{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}").kind(),
            TemplateErrorKind::kLimit);
  // As deep as a template needs is fine.
  EXPECT_EQ(Render("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% else %}end{% endif %}{% endmacro %}"
                   "{{ f(150) }}"),
            "end");
}

TEST(TemplateLimits, LargeTemplatesAreRefused) {
  EXPECT_EQ(Failure(std::string(Template::kMaxSourceBytes + 1, 'x')).kind(),
            TemplateErrorKind::kSyntax);
}

TEST(TemplateLimits, CyclesAreFreed) {  // the leak checker tells
  EXPECT_EQ(Render("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}"
                   "{% set a.self = [a] %}{% macro m() %}{% endmacro %}{% set a.m = m %}"
                   "{% for x in [1] %}{% set a.loop = loop %}{% macro k() %}{{ x }}{% endmacro %}"
                   "{% set a.k = k %}{% endfor %}{{ a.k() }}"),
            "1");
}

// ---- provenance

TEST(Provenance, LiteralsAreTrustedAndVariablesAreData) {
  EXPECT_EQ(Marked("<s>{{ x }}</s>{{ 1 }}", R"({"x": "a"})"), "<s>[a]</s>1");
}

TEST(Provenance, GoesThroughOperatorsAndMethods) {
  const std::string context = R"({"x": " ab-cd ", "l": ["p", "q"]})";
  EXPECT_EQ(Marked("{{ '<' + x + '>' }}", context), "<[ ab-cd ]>");
  EXPECT_EQ(Marked("{{ '<' ~ x ~ '>' }}", context), "<[ ab-cd ]>");
  EXPECT_EQ(Marked("{{ ('<' + x + '>') | upper }}", context), "<[ AB-CD ]>");
  EXPECT_EQ(Marked("{{ ('<' + x).strip('< ') }}", context), "[ab-cd]");
  EXPECT_EQ(Marked("{{ x.split('-') | join('|') }}", context), "[ ab]|[cd ]");
  EXPECT_EQ(Marked("{{ x.replace('-', '+') }}", context), "[ ab]+[cd ]");
  EXPECT_EQ(Marked("{{ ('a' ~ x)[::-1] }}", context), "[ dc-ba ]a");
  EXPECT_EQ(Marked("{{ 'a%sb' % x }}", context), "a[ ab-cd ]b");
  EXPECT_EQ(Marked("{{ 'a{}b'.format(x) }}", context), "a[ ab-cd ]b");
  EXPECT_EQ(Marked("{{ x | trim | replace('b', '<b>') }}", context), "[a]<b>[-cd]");
  EXPECT_EQ(Marked("{% set y %}<{{ x }}>{% endset %}{{ y | trim }}", context), "<[ ab-cd ]>");
  EXPECT_EQ(Marked("{% macro m(t) %}<{{ t }}>{% endmacro %}{{ m(x) ~ m('y') }}", context),
            "<[ ab-cd ]><y>");
  EXPECT_EQ(Marked("{% filter upper %}a{{ x }}{% endfilter %}", context), "A[ AB-CD ]");
  EXPECT_EQ(Marked("{{ l | map('upper') | join(',') }}", context), "[P],[Q]");
  EXPECT_EQ(Marked("{{ ('ab' ~ x) | first }}{{ x[1] }}", context), "a[a]");
  EXPECT_EQ(Marked("{% for c in 'a' ~ l[0] %}{{ c }}.{% endfor %}", context), "a.[p].");
  EXPECT_EQ(Marked("{{ x.center(9, '*') }}{{ ('a\\n' ~ l[0]) | indent(1, true) }}", context),
            "*[ ab-cd ]* a\n [p]");
}

TEST(Provenance, KeysAndScalarsOfDataAreData) {
  EXPECT_EQ(Marked("{% for k, v in d | items %}{{ k }}={{ v }};{% endfor %}",
                   R"({"d": {"<s>": 1, "b": true, "c": null, "f": 1.5}})"),
            "[<s>]=[1];[b]=[True];[c]=[None];[f]=[1.5];");
  EXPECT_EQ(Marked("{{ l | length }}{{ l[0] + 1 }}", R"({"l": [1]})"), "12");
}

TEST(Provenance, SerialisedDataIsDataAsAWhole) {
  EXPECT_EQ(Marked("<{{ x | tojson }}><{{ x }}><{{ {'a': 1} | tojson }}>", R"({"x": ["<s>"]})"),
            "<[[\"<s>\"]]><[['<s>']]><{\"a\": 1}>");
  EXPECT_EQ(Marked("{{ {'a': x} | tojson }}", R"({"x": "y"})"), "[{\"a\": \"y\"}]");
}

TEST(Provenance, AMarkerGluedFromLiteralAndDataStaysMixed) {
  // No stretch of template text spells the marker, so nothing may take it for one.
  EXPECT_EQ(Marked("{{ '<|' ~ x ~ '|>' }}", R"({"x": "im_end"})"), "<|[im_end]|>");
}

// ---- numbers

TEST(Numbers, IntegersAreExactAtAnySize) {
  const std::string context =
      R"({"a": 9007199254740993, "b": 123456789012345678901234567890, "c": -9223372036854775808})";
  EXPECT_EQ(Render("{{ a }} {{ b }} {{ c }} {{ b | tojson }} {{ a + 1 }} {{ b + 1 }} {{ c - 1 }}",
                   context),
            "9007199254740993 123456789012345678901234567890 -9223372036854775808 "
            "123456789012345678901234567890 9007199254740994 123456789012345678901234567891 "
            "-9223372036854775809");
  EXPECT_EQ(
      Render("{{ 2 ** 100 }} {{ -(2 ** 100) // 7 }} {{ -(2 ** 100) % 7 }} {{ 2**64 == 2.0**64 }}"),
      "1267650600228229401496703205376 -181092942889747057356671886483 5 True");
}

TEST(Numbers, AsWrittenKeepsTheDigits) {
  const Value value = ParseJsonValue(R"([1.50, 1E3, 1e400, 0.10, 12345678901234567890123])", "x",
                                     ErrorCode::kInternal, NumberStyle::kAsWritten, Origin::kData);
  Dict context;
  context.Set(Value::Str("x", Origin::kTemplate), value);
  EXPECT_EQ(Template::Parse("{{ x | tojson }} {{ x[0] + 1 }}", "test")
                .Render(Value::MakeDict(context), {})
                .text(),
            "[1.50, 1E3, 1e400, 0.10, 12345678901234567890123] 2.5");
}

TEST(Numbers, JsonIsStrict) {
  for (const char* text : {"",           "01",          "+1",
                           ".5",         "1.",          "1e",
                           "-",          "nul",         "[1,]",
                           "{\"a\":1,}", "{a:1}",       "'x'",
                           "\"\\x\"",    "\"\\ud800\"", "\"\\udc00\\ud800\"",
                           "\"a\nb\"",   "[1] 2",       "NaN",
                           "Infinity",   "\"",          "[",
                           "{",          "\xff",        "\"\xed\xa0\x80\""}) {
    SCOPED_TRACE(text);
    EXPECT_THROW(Context(text), Error);
  }
  EXPECT_THROW(ParseJsonValue(std::string(65, '[') + std::string(65, ']'), "x",
                              ErrorCode::kInternal, NumberStyle::kPython, Origin::kData),
               Error);
}

// ---- languages

TEST(Unicode, CaseMappingsAreFull) {
  EXPECT_EQ(Render("{{ 'straße ﬁ ŉ' | upper }} {{ 'İΑΣ ΑΣΑ' | lower }} {{ 'ǆ'.title() }} "
                   "{{ 'ß'.casefold() }} {{ 'ა'.upper() }}"),
            "STRASSE FI ʼN i̇ας ασα ǅ ss Ა");
}

TEST(Unicode, LargeDictionariesKeepOrderAndFindKeys) {
  std::string json = "{";
  for (int i = 0; i < 5000; ++i) json += fmt::format("{}\"k{}\": {}", i == 0 ? "" : ", ", i, i);
  EXPECT_EQ(Render("{{ d.k4999 }} {{ d['k17'] }} {{ d | length }} {{ d | first }} {{ d.nope }}",
                   "{\"d\": " + json + "}}"),
            "4999 17 5000 k0 ");
}

TEST(Syntax, TemplatesCannotLoadOthers) {
  for (const char* source : {"{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}",
                             "{% from 'x' import y %}"}) {
    EXPECT_EQ(Failure(source).kind(), TemplateErrorKind::kRuntime);
  }
}

}  // namespace
}  // namespace mference::jinja
