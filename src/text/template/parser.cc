#include "text/template/parser.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <utility>

#include "text/template/expression_parser.h"
#include "text/template/name_table.h"
#include "text/template/template.h"
#include "text/template/token_reader.h"

namespace mference::jinja {
namespace {

// The upper half: statements and the tags that enclose their bodies.
class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(source) {}

  ParsedTemplate Parse(std::string name) {
    ParsedTemplate parsed;
    parsed.name = std::move(name);
    parsed.body = ParseBody({});
    expressions_.RequireKnown();
    parsed.symbols = names_.TakeTexts();
    return parsed;
  }

 private:
  using Names = std::initializer_list<const char*>;

  static StatementPtr MakeStatement(Statement::Kind kind, int line) {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = line;
    return statement;
  }

  // Statements up to one of the tags `ends`, which is left as the current token; with no ends, to
  // the end of the template.
  Body ParseBody(Names ends) {
    const TokenReader::Nested nested(tokens_);
    Body body;
    while (tokens_.Current().kind != TokenKind::kEnd) {
      Token token = tokens_.Take();
      if (token.kind == TokenKind::kData) {
        StatementPtr text = MakeStatement(Statement::Kind::kText, token.line);
        text->literal = Value::Str(std::move(token.text), Origin::kTemplate);
        body.push_back(std::move(text));
      } else if (token.kind == TokenKind::kVariableBegin) {
        StatementPtr print = MakeStatement(Statement::Kind::kPrint, token.line);
        print->expression = expressions_.ParseTuple({});
        tokens_.Expect(TokenKind::kVariableEnd, "end of print statement");
        body.push_back(std::move(print));
      } else {
        if (tokens_.AtAny(ends)) return body;
        ParseStatement(body);
        tokens_.Expect(TokenKind::kBlockEnd, "end of statement block");
      }
    }
    if (ends.size() > 0) FailUnclosed(ends, nullptr);
    return body;
  }

  // The body of a tag: the rest of the tag's own end, statements, and the name of the end tag.
  Body ParseTagBody(Names ends) {
    tokens_.SkipOperator(":");
    tokens_.Expect(TokenKind::kBlockEnd, "end of statement block");
    end_tags_.push_back(ends);
    Body body = ParseBody(ends);
    end_tags_.pop_back();
    return body;
  }

  Body ParseTagBodyUntil(const char* end) {
    Body body = ParseTagBody({end});
    tokens_.Take();
    return body;
  }

  [[noreturn]] void FailUnclosed(const std::vector<const char*>& ends,
                                 const std::string* tag) const {
    std::string wanted;
    for (const char* end : ends) wanted += fmt::format("{}'{}'", wanted.empty() ? "" : " or ", end);
    std::string message = tag == nullptr ? "Unexpected end of template."
                                         : fmt::format("Encountered unknown tag '{}'.", *tag);
    const bool expected_further_out =
        tag != nullptr && std::any_of(end_tags_.begin(), end_tags_.end(), [&](const auto& level) {
          return std::find(level.begin(), level.end(), *tag) != level.end();
        });
    if (!wanted.empty() && expected_further_out) {
      message += fmt::format(
          " You probably made a nesting mistake. Jinja is expecting this tag, but currently "
          "looking for {}.",
          wanted);
    } else if (!wanted.empty()) {
      message += fmt::format(" Jinja was looking for the following tags: {}.", wanted);
    }
    if (!open_tags_.empty()) {
      message +=
          fmt::format(" The innermost block that needs to be closed is '{}'.", open_tags_.back());
    }
    tokens_.Fail(message);
  }

  void ParseStatement(Body& body) {
    if (tokens_.Current().kind != TokenKind::kName) tokens_.Fail("tag name expected");
    using Rule = void (Parser::*)(Body&);
    static const std::map<std::string, Rule, std::less<>> kRules = {
        {"for", &Parser::ParseFor},
        {"if", &Parser::ParseIf},
        {"set", &Parser::ParseSet},
        {"macro", &Parser::ParseMacro},
        {"call", &Parser::ParseCallBlock},
        {"filter", &Parser::ParseFilterBlock},
        {"with", &Parser::ParseWith},
        {"autoescape", &Parser::ParseAutoescape},
        {"print", &Parser::ParsePrint},
        {"block", &Parser::ParseBlock},
        {"break", &Parser::ParseLoopControl},
        {"continue", &Parser::ParseLoopControl},
        {"extends", &Parser::ParseRefused},
        {"include", &Parser::ParseRefused},
        {"import", &Parser::ParseRefused},
        {"from", &Parser::ParseRefused},
        {"generation", &Parser::ParseGeneration},
    };
    const std::string tag = tokens_.Current().text;
    const auto rule = kRules.find(tag);
    if (rule == kRules.end()) {
      FailUnclosed(end_tags_.empty() ? std::vector<const char*>() : end_tags_.back(), &tag);
    }
    open_tags_.push_back(tag);
    (this->*rule->second)(body);
    open_tags_.pop_back();
  }

  void ParseIf(Body& body) {
    const ExpressionParser::Softness soft(expressions_, true);
    StatementPtr statement = MakeStatement(Statement::Kind::kIf, tokens_.Take().line);
    while (true) {
      Branch branch;
      branch.condition = expressions_.ParseTuple({.conditional = false});
      branch.body = ParseTagBody({"elif", "else", "endif"});
      statement->branches.push_back(std::move(branch));
      const Token end = tokens_.Take();
      if (end.IsName("elif")) continue;
      if (end.IsName("else")) {
        Branch otherwise;
        otherwise.body = ParseTagBodyUntil("endif");
        statement->branches.push_back(std::move(otherwise));
      }
      break;
    }
    body.push_back(std::move(statement));
  }

  void ParseFor(Body& body) {
    StatementPtr statement = MakeStatement(Statement::Kind::kFor, tokens_.Take().line);
    ++loop_nesting_;
    statement->target = expressions_.ParseTarget({.end_name = "in", .in_loop = true});
    tokens_.ExpectName("in");
    statement->expression =
        expressions_.ParseTuple({.conditional = false, .end_name = "recursive"});
    const ExpressionParser::Softness soft(expressions_, false);
    if (tokens_.SkipName("if")) statement->condition = expressions_.ParseExpression();
    statement->recursive = tokens_.SkipName("recursive");
    {
      const NameTable::Mentions mentions(names_);
      statement->body = ParseTagBody({"endfor", "else"});
      statement->uses_loop = statement->recursive || mentions.Has(kLoopSymbol);
    }
    if (tokens_.Take().IsName("else")) statement->otherwise = ParseTagBodyUntil("endfor");
    --loop_nesting_;
    body.push_back(std::move(statement));
  }

  void ParseSet(Body& body) {
    const int line = tokens_.Take().line;
    Target target =
        expressions_.ParseTarget({.namespace_members = true, .in_loop = loop_nesting_ > 0});
    StatementPtr statement;
    if (tokens_.SkipOperator("=")) {
      statement = MakeStatement(Statement::Kind::kSet, line);
      statement->expression = expressions_.ParseTuple({});
    } else {
      statement = MakeStatement(Statement::Kind::kSetBlock, line);
      const ExpressionParser::Softness soft(expressions_, false);
      statement->expression = expressions_.ParseFilters(nullptr, false);
      statement->body = ParseTagBodyUntil("endset");
    }
    statement->target = std::move(target);
    body.push_back(std::move(statement));
  }

  void ParseSignature(MacroDefinition& macro) {
    tokens_.ExpectOperator("(");
    while (!tokens_.Current().IsOperator(")")) {
      if (!macro.parameters.empty()) tokens_.ExpectOperator(",");
      const Token name = expressions_.ParseAssignableName();
      macro.parameters.push_back(names_.Intern(name.text));
      macro.parameter_names.push_back(name.text);
      if (tokens_.SkipOperator("=")) {
        macro.defaults.push_back(expressions_.ParseExpression());
      } else if (!macro.defaults.empty()) {
        tokens_.Fail("non-default argument follows default argument");
      }
    }
    tokens_.ExpectOperator(")");
  }

  void ParseMacroBody(MacroDefinition& macro, const char* end) {
    const ExpressionParser::Softness soft(expressions_, false);
    const NameTable::Mentions mentions(names_);
    macro.body = ParseTagBodyUntil(end);
    const auto implicit = [&](Symbol symbol) {
      return mentions.Has(symbol) && std::find(macro.parameters.begin(), macro.parameters.end(),
                                               symbol) == macro.parameters.end();
    };
    macro.takes_caller = implicit(kCallerSymbol);
    macro.takes_varargs = implicit(kVarargsSymbol);
    macro.takes_kwargs = implicit(kKwargsSymbol);
  }

  void ParseMacro(Body& body) {
    StatementPtr statement = MakeStatement(Statement::Kind::kMacro, tokens_.Take().line);
    statement->macro = std::make_unique<MacroDefinition>();
    statement->macro->name = expressions_.ParseAssignableName().text;
    statement->macro->symbol = names_.Intern(statement->macro->name);
    ParseSignature(*statement->macro);
    ParseMacroBody(*statement->macro, "endmacro");
    body.push_back(std::move(statement));
  }

  void ParseCallBlock(Body& body) {
    StatementPtr statement = MakeStatement(Statement::Kind::kCallBlock, tokens_.Take().line);
    statement->macro = std::make_unique<MacroDefinition>();
    statement->macro->name = "caller";
    if (tokens_.Current().IsOperator("(")) ParseSignature(*statement->macro);
    statement->expression = expressions_.ParseExpression();
    if (statement->expression->kind != Expression::Kind::kCall) tokens_.Fail("expected call");
    ParseMacroBody(*statement->macro, "endcall");
    body.push_back(std::move(statement));
  }

  void ParseFilterBlock(Body& body) {
    StatementPtr statement = MakeStatement(Statement::Kind::kFilterBlock, tokens_.Take().line);
    const ExpressionParser::Softness soft(expressions_, false);
    statement->expression = expressions_.ParseFilters(nullptr, true);
    statement->body = ParseTagBodyUntil("endfilter");
    body.push_back(std::move(statement));
  }

  void ParseWith(Body& body) {
    StatementPtr statement = MakeStatement(Statement::Kind::kWith, tokens_.Take().line);
    while (tokens_.Current().kind != TokenKind::kBlockEnd && !tokens_.Current().IsOperator(":")) {
      if (!statement->assignments.empty()) tokens_.ExpectOperator(",");
      Target target = expressions_.ParseTarget({.in_loop = loop_nesting_ > 0});
      tokens_.ExpectOperator("=");
      statement->assignments.emplace_back(std::move(target), expressions_.ParseExpression());
    }
    const ExpressionParser::Softness soft(expressions_, false);
    statement->body = ParseTagBodyUntil("endwith");
    body.push_back(std::move(statement));
  }

  // Escaping is off in chat templates; the tag is kept for its scope.
  void ParseAutoescape(Body& body) {
    StatementPtr statement = MakeStatement(Statement::Kind::kScope, tokens_.Take().line);
    expressions_.ParseExpression();
    const ExpressionParser::Softness soft(expressions_, false);
    statement->body = ParseTagBodyUntil("endautoescape");
    body.push_back(std::move(statement));
  }

  // Marks what the model wrote, for training; its body is rendered as it is.
  void ParseGeneration(Body& body) {
    StatementPtr statement = MakeStatement(Statement::Kind::kScope, tokens_.Take().line);
    const ExpressionParser::Softness soft(expressions_, false);
    statement->body = ParseTagBodyUntil("endgeneration");
    body.push_back(std::move(statement));
  }

  void ParsePrint(Body& body) {
    const int line = tokens_.Take().line;
    bool first = true;
    while (tokens_.Current().kind != TokenKind::kBlockEnd) {
      if (!first) tokens_.ExpectOperator(",");
      first = false;
      StatementPtr statement = MakeStatement(Statement::Kind::kPrint, line);
      statement->expression = expressions_.ParseExpression();
      body.push_back(std::move(statement));
    }
  }

  void ParseBlock(Body& body) {
    StatementPtr statement = MakeStatement(Statement::Kind::kBlock, tokens_.Take().line);
    statement->name = tokens_.ExpectName().text;
    if (!block_names_.emplace(statement->name, true).second) {
      tokens_.Fail(fmt::format("block '{}' defined twice", statement->name), statement->line);
    }
    statement->scoped = tokens_.SkipName("scoped");
    tokens_.SkipName("required");
    if (tokens_.Current().IsOperator("-")) tokens_.Fail("block names may not contain hyphens");
    const ExpressionParser::Softness soft(expressions_, false);
    statement->body = ParseTagBodyUntil("endblock");
    tokens_.SkipName(statement->name);
    body.push_back(std::move(statement));
  }

  void ParseLoopControl(Body& body) {
    const Token token = tokens_.Take();
    body.push_back(MakeStatement(
        token.text == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue, token.line));
  }

  void ParseRefused(Body& body) {
    const Token token = tokens_.Take();
    StatementPtr statement = MakeStatement(Statement::Kind::kRefused, token.line);
    statement->name = token.text;
    while (tokens_.Current().kind != TokenKind::kBlockEnd &&
           tokens_.Current().kind != TokenKind::kEnd) {
      tokens_.Take();
    }
    body.push_back(std::move(statement));
  }

  TokenReader tokens_;
  NameTable names_;
  ExpressionParser expressions_{tokens_, names_};
  int loop_nesting_ = 0;
  std::vector<std::string> open_tags_;
  std::vector<std::vector<const char*>> end_tags_;
  std::map<std::string, bool> block_names_;
};

}  // namespace

ParsedTemplate ParseTemplate(std::string_view source, std::string name) {
  return Parser(source).Parse(std::move(name));
}

}  // namespace mference::jinja
