#include "text/template/token_reader.h"

#include <algorithm>

#include "text/template/template.h"

namespace mference::jinja {
namespace {

constexpr int kMaxNesting = 150;  // of expressions and of statements in the source

}  // namespace

TokenReader::TokenReader(std::string_view source) : tokens_(Tokenize(source)) {}

const Token& TokenReader::Next() const {
  return tokens_[std::min(position_ + 1, tokens_.size() - 1)];
}

Token TokenReader::Take() {
  Token token = tokens_[position_];
  if (token.kind != TokenKind::kEnd) ++position_;
  return token;
}

bool TokenReader::SkipName(std::string_view name) {
  if (!Current().IsName(name)) return false;
  Take();
  return true;
}

bool TokenReader::SkipOperator(std::string_view op) {
  if (!Current().IsOperator(op)) return false;
  Take();
  return true;
}

bool TokenReader::AtAny(std::initializer_list<const char*> names) const {
  return std::any_of(names.begin(), names.end(),
                     [&](const char* name) { return Current().IsName(name); });
}

Token TokenReader::Expect(TokenKind kind, std::string_view what) {
  if (Current().kind != kind) FailExpected(what);
  return Take();
}

void TokenReader::ExpectName(std::string_view name) {
  if (!SkipName(name)) FailExpected(name);
}

void TokenReader::ExpectOperator(std::string_view op) {
  if (!SkipOperator(op)) FailExpected(op);
}

void TokenReader::Fail(const std::string& message, int line) const {
  throw TemplateError(TemplateErrorKind::kSyntax, message, "", line != 0 ? line : Current().line);
}

void TokenReader::FailExpected(std::string_view what) const {
  if (Current().kind == TokenKind::kEnd) {
    Fail(fmt::format("unexpected end of template, expected '{}'.", what));
  }
  Fail(fmt::format("expected token '{}', got '{}'", what, DescribeToken(Current())));
}

TokenReader::Nested::Nested(TokenReader& tokens) : tokens_(tokens) {
  if (++tokens_.nesting_ > kMaxNesting) {
    tokens_.Fail(fmt::format("nested deeper than {} levels", kMaxNesting));
  }
}

}  // namespace mference::jinja
