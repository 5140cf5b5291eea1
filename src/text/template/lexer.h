// Splits a template into text and the tokens of its tags.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/template/value.h"

namespace mference::jinja {

enum class TokenKind {
  kData,           // literal text
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;  // of data, names and operators; decoded, of strings
  Value number;      // of integers and floats

  bool IsName(std::string_view name) const { return kind == TokenKind::kName && text == name; }
  bool IsOperator(std::string_view op) const { return kind == TokenKind::kOperator && text == op; }
};

// How messages name a token.
std::string DescribeToken(const Token& token);

// Applies trim_blocks, lstrip_blocks and the markers' own white-space signs; normalises newlines
// and drops one at the end of the template. The last token is kEnd. Throws TemplateError (kSyntax).
std::vector<Token> Tokenize(std::string_view source);

}  // namespace mference::jinja
