// A cursor over a template's tokens, with the errors of the grammar.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/lexer.h"

namespace mference::jinja {

// What both halves of the parser read from. It also bounds how deep the source nests, which bounds
// their recursion. Errors are TemplateError (kSyntax) with a line but no location.
class TokenReader {
 public:
  // Tokenizes `source`; throws what Tokenize does.
  explicit TokenReader(std::string_view source);
  TokenReader(const TokenReader&) = delete;
  TokenReader& operator=(const TokenReader&) = delete;

  // The kEnd token is its own successor and is never passed. References stay valid.
  const Token& Current() const { return tokens_[position_]; }
  const Token& Next() const;
  Token Take();

  // Whether the current token is that name or operator, which is then consumed.
  bool SkipName(std::string_view name);
  bool SkipOperator(std::string_view op);
  bool AtAny(std::initializer_list<const char*> names) const;

  // Consume a token or fail; `what` names it in the message.
  Token Expect(TokenKind kind, std::string_view what);
  Token ExpectName() { return Expect(TokenKind::kName, "name"); }
  void ExpectName(std::string_view name);
  void ExpectOperator(std::string_view op);

  // At `line`, or at the current token's.
  [[noreturn]] void Fail(const std::string& message, int line = 0) const;

  // One level of expressions or statements, for as long as it lives.
  class Nested {
   public:
    explicit Nested(TokenReader& tokens);  // fails at the limit
    ~Nested() { --tokens_.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    TokenReader& tokens_;
  };

 private:
  [[noreturn]] void FailExpected(std::string_view what) const;

  const std::vector<Token> tokens_;
  size_t position_ = 0;
  int nesting_ = 0;
};

}  // namespace mference::jinja
