#include "text/template/parser.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <utility>

#include "text/template/builtins.h"
#include "text/template/lexer.h"
#include "text/template/template.h"

namespace mference::jinja {
namespace {

constexpr int kMaxNesting = 150;  // of expressions and of statements in the source
constexpr int kMaxHeight = 400;   // of an expression tree, which long operator chains make high

// Which of the special names a stretch of source mentions.
struct Mentions {
  bool special[4] = {};  // by symbol: loop, caller, varargs, kwargs
};

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(Tokenize(source)) {
    for (const char* special : {"loop", "caller", "varargs", "kwargs"}) Intern(special);
  }

  ParsedTemplate Parse(std::string name) {
    ParsedTemplate parsed;
    parsed.name = std::move(name);
    parsed.body = ParseBody({});
    if (!unknown_.empty()) Fail(unknown_.front().first, unknown_.front().second);
    parsed.symbols = std::move(symbols_);
    return parsed;
  }

 private:
  using Names = std::initializer_list<const char*>;

  // ---- tokens

  const Token& Current() const { return tokens_[position_]; }
  const Token& Next() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }

  Token Take() {
    Token token = tokens_[position_];
    if (token.kind != TokenKind::kEnd) ++position_;
    return token;
  }

  bool SkipName(std::string_view name) {
    if (!Current().IsName(name)) return false;
    Take();
    return true;
  }

  bool SkipOperator(std::string_view op) {
    if (!Current().IsOperator(op)) return false;
    Take();
    return true;
  }

  [[noreturn]] void Fail(const std::string& message, int line = 0) const {
    throw TemplateError(TemplateErrorKind::kSyntax, message, "", line != 0 ? line : Current().line);
  }

  [[noreturn]] void FailExpected(std::string_view what) const {
    if (Current().kind == TokenKind::kEnd) {
      Fail(fmt::format("unexpected end of template, expected '{}'.", what));
    }
    Fail(fmt::format("expected token '{}', got '{}'", what, DescribeToken(Current())));
  }

  Token Expect(TokenKind kind, std::string_view what) {
    if (Current().kind != kind) FailExpected(what);
    return Take();
  }

  void ExpectOperator(std::string_view op) {
    if (!SkipOperator(op)) FailExpected(op);
  }

  Token ExpectName() { return Expect(TokenKind::kName, "name"); }

  void ExpectName(std::string_view name) {
    if (!SkipName(name)) FailExpected(name);
  }

  bool AtAny(Names names) const {
    return std::any_of(names.begin(), names.end(),
                       [&](const char* name) { return Current().IsName(name); });
  }

  // ---- names and bookkeeping

  Symbol Intern(const std::string& name) {
    const auto [entry, inserted] = symbol_ids_.emplace(name, static_cast<Symbol>(symbols_.size()));
    if (inserted) symbols_.push_back(name);
    return entry->second;
  }

  // Counts nesting for as long as it lives.
  class Nested {
   public:
    explicit Nested(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMaxNesting) {
        parser_.Fail(fmt::format("nested deeper than {} levels", kMaxNesting));
      }
    }
    ~Nested() { --parser_.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Parser& parser_;
  };

  // Inside an `if`, unknown filters and tests are errors only when they are reached; the bodies of
  // loops and macros start afresh. (So the reference compiler does.)
  class Softness {
   public:
    Softness(Parser& parser, bool soft) : parser_(parser), before_(parser.soft_) {
      parser_.soft_ = soft;
    }
    ~Softness() { parser_.soft_ = before_; }
    Softness(const Softness&) = delete;
    Softness& operator=(const Softness&) = delete;

   private:
    Parser& parser_;
    bool before_;
  };

  void Mention(Symbol symbol) {
    if (symbol > kKwargsSymbol) return;
    for (Mentions* mentions : mentions_) mentions->special[symbol] = true;
  }

  ExpressionPtr Make(Expression::Kind kind, int line, std::vector<ExpressionPtr> operands = {}) {
    auto node = std::make_unique<Expression>();
    node->kind = kind;
    node->line = line;
    for (const ExpressionPtr& operand : operands) {
      if (operand) node->height = std::max(node->height, operand->height + 1);
    }
    if (node->height > kMaxHeight) Fail("an expression is too long", line);
    node->operands = std::move(operands);
    return node;
  }

  template <typename... Operands>
  ExpressionPtr MakeOf(Expression::Kind kind, int line, Operands... operands) {
    std::vector<ExpressionPtr> list;
    (list.push_back(std::move(operands)), ...);
    return Make(kind, line, std::move(list));
  }

  ExpressionPtr MakeLiteral(Value value, int line) {
    ExpressionPtr node = Make(Expression::Kind::kLiteral, line);
    node->literal = std::move(value);
    return node;
  }

  static StatementPtr MakeStatement(Statement::Kind kind, int line) {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = line;
    return statement;
  }

  // ---- statements

  // Statements up to one of the tags `ends`, which is left as the current token; with no ends, to
  // the end of the template.
  Body ParseBody(Names ends) {
    const Nested nested(*this);
    Body body;
    while (Current().kind != TokenKind::kEnd) {
      Token token = Take();
      if (token.kind == TokenKind::kData) {
        StatementPtr text = MakeStatement(Statement::Kind::kText, token.line);
        text->literal = Value::Str(std::move(token.text), Origin::kTemplate);
        body.push_back(std::move(text));
      } else if (token.kind == TokenKind::kVariableBegin) {
        StatementPtr print = MakeStatement(Statement::Kind::kPrint, token.line);
        print->expression = ParseTuple({});
        Expect(TokenKind::kVariableEnd, "end of print statement");
        body.push_back(std::move(print));
      } else {
        if (AtAny(ends)) return body;
        ParseStatement(body);
        Expect(TokenKind::kBlockEnd, "end of statement block");
      }
    }
    if (ends.size() > 0) FailUnclosed(ends, nullptr);
    return body;
  }

  // The body of a tag: the rest of the tag's own end, statements, and the name of the end tag.
  Body ParseTagBody(Names ends) {
    SkipOperator(":");
    Expect(TokenKind::kBlockEnd, "end of statement block");
    end_tags_.push_back(ends);
    Body body = ParseBody(ends);
    end_tags_.pop_back();
    return body;
  }

  Body ParseTagBodyUntil(const char* end) {
    Body body = ParseTagBody({end});
    Take();
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
          "looking "
          "for {}.",
          wanted);
    } else if (!wanted.empty()) {
      message += fmt::format(" Jinja was looking for the following tags: {}.", wanted);
    }
    if (!open_tags_.empty()) {
      message +=
          fmt::format(" The innermost block that needs to be closed is '{}'.", open_tags_.back());
    }
    Fail(message);
  }

  void ParseStatement(Body& body) {
    if (Current().kind != TokenKind::kName) Fail("tag name expected");
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
    const std::string tag = Current().text;
    const auto rule = kRules.find(tag);
    if (rule == kRules.end()) {
      FailUnclosed(end_tags_.empty() ? std::vector<const char*>() : end_tags_.back(), &tag);
    }
    open_tags_.push_back(tag);
    (this->*rule->second)(body);
    open_tags_.pop_back();
  }

  void ParseIf(Body& body) {
    const Softness soft(*this, true);
    StatementPtr statement = MakeStatement(Statement::Kind::kIf, Take().line);
    while (true) {
      Branch branch;
      branch.condition = ParseTuple({.conditional = false});
      branch.body = ParseTagBody({"elif", "else", "endif"});
      statement->branches.push_back(std::move(branch));
      const Token end = Take();
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
    StatementPtr statement = MakeStatement(Statement::Kind::kFor, Take().line);
    ++loop_nesting_;
    statement->target = ParseTarget({.end_name = "in"});
    ExpectName("in");
    statement->expression = ParseTuple({.conditional = false, .end_name = "recursive"});
    const Softness soft(*this, false);
    if (SkipName("if")) statement->condition = ParseExpression();
    statement->recursive = SkipName("recursive");
    Mentions mentions;
    mentions_.push_back(&mentions);
    statement->body = ParseTagBody({"endfor", "else"});
    mentions_.pop_back();
    statement->uses_loop = statement->recursive || mentions.special[kLoopSymbol];
    if (Take().IsName("else")) statement->otherwise = ParseTagBodyUntil("endfor");
    --loop_nesting_;
    body.push_back(std::move(statement));
  }

  void ParseSet(Body& body) {
    const int line = Take().line;
    Target target = ParseTarget({.namespace_members = true});
    StatementPtr statement;
    if (SkipOperator("=")) {
      statement = MakeStatement(Statement::Kind::kSet, line);
      statement->expression = ParseTuple({});
    } else {
      statement = MakeStatement(Statement::Kind::kSetBlock, line);
      const Softness soft(*this, false);
      statement->expression = ParseFilters(nullptr, false);
      statement->body = ParseTagBodyUntil("endset");
    }
    statement->target = std::move(target);
    body.push_back(std::move(statement));
  }

  void ParseSignature(MacroDefinition& macro) {
    ExpectOperator("(");
    while (!Current().IsOperator(")")) {
      if (!macro.parameters.empty()) ExpectOperator(",");
      const Token name = ParseAssignableName();
      macro.parameters.push_back(Intern(name.text));
      macro.parameter_names.push_back(name.text);
      if (SkipOperator("=")) {
        macro.defaults.push_back(ParseExpression());
      } else if (!macro.defaults.empty()) {
        Fail("non-default argument follows default argument");
      }
    }
    ExpectOperator(")");
  }

  void ParseMacroBody(MacroDefinition& macro, const char* end) {
    const Softness soft(*this, false);
    Mentions mentions;
    mentions_.push_back(&mentions);
    macro.body = ParseTagBodyUntil(end);
    mentions_.pop_back();
    const auto implicit = [&](Symbol symbol) {
      return mentions.special[symbol] && std::find(macro.parameters.begin(), macro.parameters.end(),
                                                   symbol) == macro.parameters.end();
    };
    macro.takes_caller = implicit(kCallerSymbol);
    macro.takes_varargs = implicit(kVarargsSymbol);
    macro.takes_kwargs = implicit(kKwargsSymbol);
  }

  void ParseMacro(Body& body) {
    StatementPtr statement = MakeStatement(Statement::Kind::kMacro, Take().line);
    statement->macro = std::make_unique<MacroDefinition>();
    statement->macro->name = ParseAssignableName().text;
    statement->macro->symbol = Intern(statement->macro->name);
    ParseSignature(*statement->macro);
    ParseMacroBody(*statement->macro, "endmacro");
    body.push_back(std::move(statement));
  }

  void ParseCallBlock(Body& body) {
    StatementPtr statement = MakeStatement(Statement::Kind::kCallBlock, Take().line);
    statement->macro = std::make_unique<MacroDefinition>();
    statement->macro->name = "caller";
    if (Current().IsOperator("(")) ParseSignature(*statement->macro);
    statement->expression = ParseExpression();
    if (statement->expression->kind != Expression::Kind::kCall) Fail("expected call");
    ParseMacroBody(*statement->macro, "endcall");
    body.push_back(std::move(statement));
  }

  void ParseFilterBlock(Body& body) {
    StatementPtr statement = MakeStatement(Statement::Kind::kFilterBlock, Take().line);
    const Softness soft(*this, false);
    statement->expression = ParseFilters(nullptr, true);
    statement->body = ParseTagBodyUntil("endfilter");
    body.push_back(std::move(statement));
  }

  void ParseWith(Body& body) {
    StatementPtr statement = MakeStatement(Statement::Kind::kWith, Take().line);
    while (Current().kind != TokenKind::kBlockEnd && !Current().IsOperator(":")) {
      if (!statement->assignments.empty()) ExpectOperator(",");
      Target target = ParseTarget({});
      ExpectOperator("=");
      statement->assignments.emplace_back(std::move(target), ParseExpression());
    }
    const Softness soft(*this, false);
    statement->body = ParseTagBodyUntil("endwith");
    body.push_back(std::move(statement));
  }

  // Escaping is off in chat templates; the tag is kept for its scope.
  void ParseAutoescape(Body& body) {
    StatementPtr statement = MakeStatement(Statement::Kind::kScope, Take().line);
    ParseExpression();
    const Softness soft(*this, false);
    statement->body = ParseTagBodyUntil("endautoescape");
    body.push_back(std::move(statement));
  }

  // Marks what the model wrote, for training; its body is rendered as it is.
  void ParseGeneration(Body& body) {
    StatementPtr statement = MakeStatement(Statement::Kind::kScope, Take().line);
    const Softness soft(*this, false);
    statement->body = ParseTagBodyUntil("endgeneration");
    body.push_back(std::move(statement));
  }

  void ParsePrint(Body& body) {
    const int line = Take().line;
    bool first = true;
    while (Current().kind != TokenKind::kBlockEnd) {
      if (!first) ExpectOperator(",");
      first = false;
      StatementPtr statement = MakeStatement(Statement::Kind::kPrint, line);
      statement->expression = ParseExpression();
      body.push_back(std::move(statement));
    }
  }

  void ParseBlock(Body& body) {
    StatementPtr statement = MakeStatement(Statement::Kind::kBlock, Take().line);
    statement->name = ExpectName().text;
    if (!block_names_.emplace(statement->name, true).second) {
      Fail(fmt::format("block '{}' defined twice", statement->name), statement->line);
    }
    statement->scoped = SkipName("scoped");
    SkipName("required");
    if (Current().IsOperator("-")) Fail("block names may not contain hyphens");
    const Softness soft(*this, false);
    statement->body = ParseTagBodyUntil("endblock");
    SkipName(statement->name);
    body.push_back(std::move(statement));
  }

  void ParseLoopControl(Body& body) {
    const Token token = Take();
    body.push_back(MakeStatement(
        token.text == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue, token.line));
  }

  void ParseRefused(Body& body) {
    const Token token = Take();
    StatementPtr statement = MakeStatement(Statement::Kind::kRefused, token.line);
    statement->name = token.text;
    while (Current().kind != TokenKind::kBlockEnd && Current().kind != TokenKind::kEnd) Take();
    body.push_back(std::move(statement));
  }

  // ---- assignment targets

  struct TargetOptions {
    const char* end_name = nullptr;  // a name that ends the list of targets
    bool namespace_members = false;
  };

  static bool IsConstantName(const std::string& name) {
    return name == "true" || name == "false" || name == "none" || name == "True" ||
           name == "False" || name == "None";
  }

  Token ParseAssignableName() {
    Token name = ExpectName();
    if (IsConstantName(name.text)) Fail("can't assign to 'name'", name.line);
    return name;
  }

  bool AtTupleEnd(const char* end_name) const {
    return Current().kind == TokenKind::kVariableEnd || Current().kind == TokenKind::kBlockEnd ||
           Current().IsOperator(")") || (end_name != nullptr && Current().IsName(end_name));
  }

  Target ParseTarget(TargetOptions options) {
    const Nested nested(*this);
    Target tuple;
    tuple.kind = Target::Kind::kTuple;
    bool is_tuple = false;
    while (!AtTupleEnd(options.end_name)) {
      tuple.parts.push_back(ParseSingleTarget(options));
      if (!SkipOperator(",")) break;
      is_tuple = true;
    }
    if (is_tuple) return tuple;
    if (tuple.parts.empty()) {
      Fail(fmt::format("Expected an expression, got '{}'", DescribeToken(Current())));
    }
    return std::move(tuple.parts[0]);
  }

  Target ParseSingleTarget(const TargetOptions& options) {
    const int line = Current().line;
    if (SkipOperator("(")) {
      Target inner;
      if (Current().IsOperator(")")) {
        inner.kind = Target::Kind::kTuple;
      } else {
        inner = ParseTarget({});
      }
      ExpectOperator(")");
      return inner;
    }
    if (Current().kind != TokenKind::kName || IsConstantName(Current().text)) {
      if (Current().kind == TokenKind::kOperator && !Current().IsOperator("[") &&
          !Current().IsOperator("{")) {
        Fail(fmt::format("unexpected '{}'", DescribeToken(Current())));
      }
      Fail("can't assign to 'const'", line);
    }
    const Token name = Take();
    Target target;
    target.symbol = Intern(name.text);
    if (loop_nesting_ > 0 && target.symbol == kLoopSymbol) {
      Fail("Can't assign to special loop variable in for-loop target", line);
    }
    if (options.namespace_members && SkipOperator(".")) {
      target.kind = Target::Kind::kNamespaceMember;
      target.member = ExpectName().text;
      Mention(target.symbol);
    }
    return target;
  }

  // ---- expressions

  struct TupleOptions {
    bool conditional = true;
    const char* end_name = nullptr;
    bool parentheses = false;  // where () is the empty tuple
  };

  ExpressionPtr ParseTuple(TupleOptions options) {
    const int line = Current().line;
    std::vector<ExpressionPtr> items;
    bool is_tuple = false;
    while (true) {
      if (!items.empty()) ExpectOperator(",");
      if (AtTupleEnd(options.end_name)) break;
      items.push_back(options.conditional ? ParseExpression() : ParseOr());
      if (!Current().IsOperator(",")) break;
      is_tuple = true;
    }
    if (!is_tuple) {
      if (!items.empty()) return std::move(items[0]);
      if (!options.parentheses) {
        Fail(fmt::format("Expected an expression, got '{}'", DescribeToken(Current())));
      }
    }
    return Make(Expression::Kind::kTuple, line, std::move(items));
  }

  ExpressionPtr ParseExpression() {
    const Nested nested(*this);
    const int line = Current().line;
    // A conditional makes all of its parts soft, the value before its `if` too.
    const size_t unknown_before = unknown_.size();
    ExpressionPtr value = ParseOr();
    while (SkipName("if")) {
      ExpressionPtr condition = ParseOr();
      ExpressionPtr alternative;
      if (SkipName("else")) alternative = ParseExpression();
      unknown_.resize(unknown_before);
      value = MakeOf(Expression::Kind::kConditional, line, std::move(value), std::move(condition),
                     std::move(alternative));
    }
    return value;
  }

  ExpressionPtr ParseOr() {
    ExpressionPtr left = ParseAnd();
    while (Current().IsName("or")) {
      const int line = Take().line;
      left = MakeOf(Expression::Kind::kOr, line, std::move(left), ParseAnd());
    }
    return left;
  }

  ExpressionPtr ParseAnd() {
    ExpressionPtr left = ParseNot();
    while (Current().IsName("and")) {
      const int line = Take().line;
      left = MakeOf(Expression::Kind::kAnd, line, std::move(left), ParseNot());
    }
    return left;
  }

  ExpressionPtr ParseNot() {
    if (!Current().IsName("not")) return ParseCompare();
    const Nested nested(*this);
    const int line = Take().line;
    return MakeOf(Expression::Kind::kNot, line, ParseNot());
  }

  // The comparison at the current token, which is consumed.
  bool TakeComparison(Comparison* comparison) {
    constexpr std::pair<const char*, Comparison> kSymbols[] = {
        {"==", Comparison::kEqual},  {"!=", Comparison::kNotEqual},
        {"<", Comparison::kLess},    {"<=", Comparison::kLessEqual},
        {">", Comparison::kGreater}, {">=", Comparison::kGreaterEqual}};
    for (const auto& [symbol, which] : kSymbols) {
      if (SkipOperator(symbol)) {
        *comparison = which;
        return true;
      }
    }
    *comparison = Comparison::kIn;
    if (SkipName("in")) return true;
    if (!Current().IsName("not") || !Next().IsName("in")) return false;
    Take();
    Take();
    *comparison = Comparison::kNotIn;
    return true;
  }

  ExpressionPtr ParseCompare() {
    const int line = Current().line;
    std::vector<ExpressionPtr> operands;
    std::vector<Comparison> comparisons;
    operands.push_back(ParseSum());
    for (Comparison comparison{}; TakeComparison(&comparison);) {
      comparisons.push_back(comparison);
      operands.push_back(ParseSum());
    }
    if (comparisons.empty()) return std::move(operands[0]);
    ExpressionPtr node = Make(Expression::Kind::kCompare, line, std::move(operands));
    node->comparisons = std::move(comparisons);
    return node;
  }

  using Level = ExpressionPtr (Parser::*)();

  ExpressionPtr ParseLeftAssociative(
      std::initializer_list<std::pair<const char*, BinaryOperator>> operators, Level operand) {
    ExpressionPtr left = (this->*operand)();
    while (true) {
      const auto* op = std::find_if(operators.begin(), operators.end(), [&](const auto& candidate) {
        return Current().IsOperator(candidate.first);
      });
      if (op == operators.end()) return left;
      const int line = Take().line;
      left = MakeOf(Expression::Kind::kBinary, line, std::move(left), (this->*operand)());
      left->op = op->second;
    }
  }

  ExpressionPtr ParseSum() {
    return ParseLeftAssociative({{"+", BinaryOperator::kAdd}, {"-", BinaryOperator::kSubtract}},
                                &Parser::ParseConcat);
  }

  ExpressionPtr ParseConcat() {
    const int line = Current().line;
    std::vector<ExpressionPtr> parts;
    do {
      parts.push_back(ParseProduct());
    } while (SkipOperator("~"));
    if (parts.size() == 1) return std::move(parts[0]);
    return Make(Expression::Kind::kConcat, line, std::move(parts));
  }

  ExpressionPtr ParseProduct() {
    return ParseLeftAssociative({{"*", BinaryOperator::kMultiply},
                                 {"/", BinaryOperator::kDivide},
                                 {"//", BinaryOperator::kFloorDivide},
                                 {"%", BinaryOperator::kModulo}},
                                &Parser::ParsePower);
  }

  ExpressionPtr ParsePower() {
    return ParseLeftAssociative({{"**", BinaryOperator::kPower}}, &Parser::ParseFilteredUnary);
  }

  ExpressionPtr ParseFilteredUnary() { return ParseUnary(true); }

  ExpressionPtr ParseUnary(bool with_filters) {
    const Nested nested(*this);
    const int line = Current().line;
    ExpressionPtr node;
    if (SkipOperator("-")) {
      node = MakeOf(Expression::Kind::kNegate, line, ParseUnary(false));
    } else if (SkipOperator("+")) {
      node = MakeOf(Expression::Kind::kPlus, line, ParseUnary(false));
    } else {
      node = ParsePrimary();
    }
    node = ParsePostfix(std::move(node));
    return with_filters ? ParseFilterExpression(std::move(node)) : std::move(node);
  }

  ExpressionPtr ParsePrimary() {
    const Token& token = Current();
    const int line = token.line;
    switch (token.kind) {
      case TokenKind::kName:
        return ParseNameOrConstant();
      case TokenKind::kString: {
        std::string text;
        while (Current().kind == TokenKind::kString) text += Take().text;
        return MakeLiteral(Value::Str(std::move(text), Origin::kTemplate), line);
      }
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        return MakeLiteral(Take().number, line);
      case TokenKind::kOperator:
        break;
      default:
        Fail(fmt::format("unexpected '{}'", DescribeToken(token)));
    }
    if (SkipOperator("(")) {
      ExpressionPtr inner = ParseTuple({.parentheses = true});
      ExpectOperator(")");
      return inner;
    }
    if (SkipOperator("[")) {
      std::vector<ExpressionPtr> items;
      while (!Current().IsOperator("]")) {
        if (!items.empty()) ExpectOperator(",");
        if (Current().IsOperator("]")) break;
        items.push_back(ParseExpression());
      }
      ExpectOperator("]");
      return Make(Expression::Kind::kList, line, std::move(items));
    }
    if (SkipOperator("{")) {
      std::vector<ExpressionPtr> items;
      while (!Current().IsOperator("}")) {
        if (!items.empty()) ExpectOperator(",");
        if (Current().IsOperator("}")) break;
        items.push_back(ParseExpression());
        ExpectOperator(":");
        items.push_back(ParseExpression());
      }
      ExpectOperator("}");
      return Make(Expression::Kind::kDict, line, std::move(items));
    }
    Fail(fmt::format("unexpected '{}'", DescribeToken(token)));
  }

  ExpressionPtr ParseNameOrConstant() {
    const Token name = Take();
    if (name.text == "true" || name.text == "True")
      return MakeLiteral(Value::Bool(true), name.line);
    if (name.text == "false" || name.text == "False") {
      return MakeLiteral(Value::Bool(false), name.line);
    }
    if (name.text == "none" || name.text == "None") return MakeLiteral(Value::None(), name.line);
    ExpressionPtr node = Make(Expression::Kind::kName, name.line);
    node->name = name.text;
    node->symbol = Intern(name.text);
    Mention(node->symbol);
    return node;
  }

  ExpressionPtr ParsePostfix(ExpressionPtr node) {
    while (true) {
      if (Current().IsOperator(".")) {
        node = ParseAttribute(std::move(node));
      } else if (Current().IsOperator("[")) {
        node = ParseSubscript(std::move(node));
      } else if (Current().IsOperator("(")) {
        node = ParseCall(std::move(node));
      } else {
        return node;
      }
    }
  }

  ExpressionPtr ParseFilterExpression(ExpressionPtr node) {
    while (true) {
      if (Current().IsOperator("|")) {
        node = ParseFilters(std::move(node), false);
      } else if (Current().IsName("is")) {
        node = ParseTest(std::move(node));
      } else if (Current().IsOperator("(")) {
        node = ParseCall(std::move(node));
      } else {
        return node;
      }
    }
  }

  ExpressionPtr ParseAttribute(ExpressionPtr object) {
    const int line = Take().line;
    const Token name = Take();
    if (name.kind == TokenKind::kName) {
      ExpressionPtr node = MakeOf(Expression::Kind::kAttribute, line, std::move(object));
      node->name = name.text;
      return node;
    }
    if (name.kind != TokenKind::kInteger) Fail("expected name or number", name.line);
    return MakeOf(Expression::Kind::kItem, line, std::move(object),
                  MakeLiteral(name.number, name.line));
  }

  ExpressionPtr ParseSubscript(ExpressionPtr object) {
    const int line = Take().line;
    std::vector<ExpressionPtr> keys;
    bool slice = false;
    while (!Current().IsOperator("]")) {
      if (!keys.empty()) ExpectOperator(",");
      keys.push_back(ParseSubscribed(object, &slice));
    }
    ExpectOperator("]");
    if (keys.size() == 1 && slice) return std::move(keys[0]);
    // Python has no use for x[a:b, c] on the values of a template: never found.
    ExpressionPtr key = keys.size() == 1 ? std::move(keys[0])
                                         : Make(Expression::Kind::kTuple, line, std::move(keys));
    return MakeOf(Expression::Kind::kItem, line, std::move(object), std::move(key));
  }

  // One key, or a slice, which takes over `object`.
  ExpressionPtr ParseSubscribed(ExpressionPtr& object, bool* slice) {
    const int line = Current().line;
    ExpressionPtr bounds[3];
    if (!Current().IsOperator(":")) {
      bounds[0] = ParseExpression();
      if (!Current().IsOperator(":")) return std::move(bounds[0]);
    }
    for (int i = 1; i < 3 && SkipOperator(":"); ++i) {
      if (!Current().IsOperator(":") && !Current().IsOperator("]") && !Current().IsOperator(",")) {
        bounds[i] = ParseExpression();
      }
    }
    if (*slice || !object) Fail("unsupported subscript", line);
    *slice = true;
    return MakeOf(Expression::Kind::kSlice, line, std::move(object), std::move(bounds[0]),
                  std::move(bounds[1]), std::move(bounds[2]));
  }

  std::unique_ptr<Arguments> ParseArguments(int* height) {
    const int line = Current().line;
    ExpectOperator("(");
    auto arguments = std::make_unique<Arguments>();
    const auto ensure = [&](bool valid) {
      if (!valid) Fail("invalid syntax for function call expression", line);
    };
    const auto parse = [&] {
      ExpressionPtr value = ParseExpression();
      *height = std::max(*height, value->height);
      return value;
    };
    for (bool first = true; !Current().IsOperator(")"); first = false) {
      if (!first) {
        ExpectOperator(",");
        if (Current().IsOperator(")")) break;
      }
      if (SkipOperator("*")) {
        ensure(!arguments->spread && !arguments->keyword_spread);
        arguments->spread = parse();
      } else if (SkipOperator("**")) {
        ensure(!arguments->keyword_spread);
        arguments->keyword_spread = parse();
      } else if (Current().kind == TokenKind::kName && Next().IsOperator("=")) {
        ensure(!arguments->keyword_spread);
        const std::string key = Take().text;
        Take();
        arguments->keyword.emplace_back(key, parse());
      } else {
        ensure(!arguments->spread && !arguments->keyword_spread && arguments->keyword.empty());
        arguments->positional.push_back(parse());
      }
    }
    ExpectOperator(")");
    return arguments;
  }

  void Attach(Expression& node, std::unique_ptr<Arguments> arguments, int height) {
    node.arguments = std::move(arguments);
    node.height = std::max(node.height, height + 1);
    if (node.height > kMaxHeight) Fail("an expression is too long", node.line);
  }

  ExpressionPtr ParseCall(ExpressionPtr callee) {
    const int line = Current().line;
    int height = 0;
    auto arguments = ParseArguments(&height);
    ExpressionPtr node = MakeOf(Expression::Kind::kCall, line, std::move(callee));
    Attach(*node, std::move(arguments), height);
    return node;
  }

  std::string ParseDottedName() {
    std::string name = ExpectName().text;
    while (SkipOperator(".")) name += "." + ExpectName().text;
    return name;
  }

  // A chain of filters on `node`; `inline_start` begins with a name instead of a bar.
  ExpressionPtr ParseFilters(ExpressionPtr node, bool inline_start) {
    while (inline_start || Current().IsOperator("|")) {
      if (!inline_start) Take();
      inline_start = false;
      const int line = Current().line;
      const std::string name = ParseDottedName();
      ExpressionPtr filter = MakeOf(Expression::Kind::kFilter, line, std::move(node));
      filter->name = name;
      filter->filter = FindFilter(name);
      if (filter->filter == nullptr) Unknown(fmt::format("No filter named '{}'.", name), line);
      int height = 0;
      std::unique_ptr<Arguments> arguments =
          Current().IsOperator("(") ? ParseArguments(&height) : std::make_unique<Arguments>();
      Attach(*filter, std::move(arguments), height);
      node = std::move(filter);
    }
    return node;
  }

  ExpressionPtr ParseTest(ExpressionPtr node) {
    const int line = Take().line;
    const bool negated = SkipName("not");
    const std::string name = ParseDottedName();
    ExpressionPtr test = MakeOf(Expression::Kind::kTest, line, std::move(node));
    test->name = name;
    test->test = FindTest(name);
    if (test->test == nullptr) Unknown(fmt::format("No test named '{}'.", name), line);
    int height = 0;
    auto arguments = std::make_unique<Arguments>();
    if (Current().IsOperator("(")) {
      arguments = ParseArguments(&height);
    } else if (BeginsTestArgument()) {
      if (Current().IsName("is")) Fail("You cannot chain multiple tests with is");
      ExpressionPtr argument = ParsePostfix(ParsePrimary());
      height = argument->height;
      arguments->positional.push_back(std::move(argument));
    }
    Attach(*test, std::move(arguments), height);
    return negated ? MakeOf(Expression::Kind::kNot, line, std::move(test)) : std::move(test);
  }

  bool BeginsTestArgument() const {
    const Token& token = Current();
    switch (token.kind) {
      case TokenKind::kName:
        return !AtAny({"else", "or", "and"});
      case TokenKind::kString:
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        return true;
      default:
        return token.IsOperator("[") || token.IsOperator("{");
    }
  }

  void Unknown(std::string message, int line) {
    if (!soft_) unknown_.emplace_back(std::move(message), line);
  }

  std::vector<Token> tokens_;
  size_t position_ = 0;
  std::map<std::string, Symbol> symbol_ids_;
  std::vector<std::string> symbols_;
  int nesting_ = 0;
  int loop_nesting_ = 0;
  bool soft_ = false;
  std::vector<Mentions*> mentions_;
  std::vector<std::string> open_tags_;
  std::vector<std::vector<const char*>> end_tags_;
  std::map<std::string, bool> block_names_;
  std::vector<std::pair<std::string, int>> unknown_;  // filters and tests, with lines
};

}  // namespace

ParsedTemplate ParseTemplate(std::string_view source, std::string name) {
  return Parser(source).Parse(std::move(name));
}

}  // namespace mference::jinja
