#include "text/template/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/template/builtins.h"

namespace mference::jinja {
namespace {

constexpr int kMaxHeight = 400;  // of an expression tree, which long operator chains make high

bool IsConstantName(const std::string& name) {
  return name == "true" || name == "false" || name == "none" || name == "True" || name == "False" ||
         name == "None";
}

}  // namespace

void ExpressionParser::RequireKnown() const {
  if (!unknown_.empty()) tokens_.Fail(unknown_.front().first, unknown_.front().second);
}

// ---- nodes

ExpressionPtr ExpressionParser::Make(Expression::Kind kind, int line,
                                     std::vector<ExpressionPtr> operands) {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = line;
  for (const ExpressionPtr& operand : operands) {
    if (operand) node->height = std::max(node->height, operand->height + 1);
  }
  if (node->height > kMaxHeight) tokens_.Fail("an expression is too long", line);
  node->operands = std::move(operands);
  return node;
}

template <typename... Operands>
ExpressionPtr ExpressionParser::MakeOf(Expression::Kind kind, int line, Operands... operands) {
  std::vector<ExpressionPtr> list;
  (list.push_back(std::move(operands)), ...);
  return Make(kind, line, std::move(list));
}

ExpressionPtr ExpressionParser::MakeLiteral(Value value, int line) {
  ExpressionPtr node = Make(Expression::Kind::kLiteral, line);
  node->literal = std::move(value);
  return node;
}

void ExpressionParser::Attach(Expression& node, std::unique_ptr<Arguments> arguments, int height) {
  node.arguments = std::move(arguments);
  node.height = std::max(node.height, height + 1);
  if (node.height > kMaxHeight) tokens_.Fail("an expression is too long", node.line);
}

// ---- assignment targets

Token ExpressionParser::ParseAssignableName() {
  Token name = tokens_.ExpectName();
  if (IsConstantName(name.text)) tokens_.Fail("can't assign to 'name'", name.line);
  return name;
}

bool ExpressionParser::AtTupleEnd(const char* end_name) const {
  return tokens_.Current().kind == TokenKind::kVariableEnd ||
         tokens_.Current().kind == TokenKind::kBlockEnd || tokens_.Current().IsOperator(")") ||
         (end_name != nullptr && tokens_.Current().IsName(end_name));
}

Target ExpressionParser::ParseTarget(TargetOptions options) {
  const TokenReader::Nested nested(tokens_);
  Target tuple;
  tuple.kind = Target::Kind::kTuple;
  bool is_tuple = false;
  while (!AtTupleEnd(options.end_name)) {
    tuple.parts.push_back(ParseSingleTarget(options));
    if (!tokens_.SkipOperator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return tuple;
  if (tuple.parts.empty()) {
    tokens_.Fail(fmt::format("Expected an expression, got '{}'", DescribeToken(tokens_.Current())));
  }
  return std::move(tuple.parts[0]);
}

Target ExpressionParser::ParseSingleTarget(const TargetOptions& options) {
  const int line = tokens_.Current().line;
  if (tokens_.SkipOperator("(")) {
    Target inner;
    if (tokens_.Current().IsOperator(")")) {
      inner.kind = Target::Kind::kTuple;
    } else {
      inner = ParseTarget({.in_loop = options.in_loop});
    }
    tokens_.ExpectOperator(")");
    return inner;
  }
  if (tokens_.Current().kind != TokenKind::kName || IsConstantName(tokens_.Current().text)) {
    if (tokens_.Current().kind == TokenKind::kOperator && !tokens_.Current().IsOperator("[") &&
        !tokens_.Current().IsOperator("{")) {
      tokens_.Fail(fmt::format("unexpected '{}'", DescribeToken(tokens_.Current())));
    }
    tokens_.Fail("can't assign to 'const'", line);
  }
  const Token name = tokens_.Take();
  Target target;
  target.symbol = names_.Intern(name.text);
  if (options.in_loop && target.symbol == kLoopSymbol) {
    tokens_.Fail("Can't assign to special loop variable in for-loop target", line);
  }
  if (options.namespace_members && tokens_.SkipOperator(".")) {
    target.kind = Target::Kind::kNamespaceMember;
    target.member = tokens_.ExpectName().text;
    names_.Mention(target.symbol);
  }
  return target;
}

// ---- operators

ExpressionPtr ExpressionParser::ParseTuple(TupleOptions options) {
  const int line = tokens_.Current().line;
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) tokens_.ExpectOperator(",");
    if (AtTupleEnd(options.end_name)) break;
    items.push_back(options.conditional ? ParseExpression() : ParseOr());
    if (!tokens_.Current().IsOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!options.parentheses) {
      tokens_.Fail(
          fmt::format("Expected an expression, got '{}'", DescribeToken(tokens_.Current())));
    }
  }
  return Make(Expression::Kind::kTuple, line, std::move(items));
}

ExpressionPtr ExpressionParser::ParseExpression() {
  const TokenReader::Nested nested(tokens_);
  const int line = tokens_.Current().line;
  // A conditional makes all of its parts soft, the value before its `if` too.
  const size_t unknown_before = unknown_.size();
  ExpressionPtr value = ParseOr();
  while (tokens_.SkipName("if")) {
    ExpressionPtr condition = ParseOr();
    ExpressionPtr alternative;
    if (tokens_.SkipName("else")) alternative = ParseExpression();
    unknown_.resize(unknown_before);
    value = MakeOf(Expression::Kind::kConditional, line, std::move(value), std::move(condition),
                   std::move(alternative));
  }
  return value;
}

ExpressionPtr ExpressionParser::ParseOr() {
  ExpressionPtr left = ParseAnd();
  while (tokens_.Current().IsName("or")) {
    const int line = tokens_.Take().line;
    left = MakeOf(Expression::Kind::kOr, line, std::move(left), ParseAnd());
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseAnd() {
  ExpressionPtr left = ParseNot();
  while (tokens_.Current().IsName("and")) {
    const int line = tokens_.Take().line;
    left = MakeOf(Expression::Kind::kAnd, line, std::move(left), ParseNot());
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseNot() {
  if (!tokens_.Current().IsName("not")) return ParseCompare();
  const TokenReader::Nested nested(tokens_);
  const int line = tokens_.Take().line;
  return MakeOf(Expression::Kind::kNot, line, ParseNot());
}

// The comparison at the current token, which is consumed.
bool ExpressionParser::TakeComparison(Comparison* comparison) {
  constexpr std::pair<const char*, Comparison> kSymbols[] = {
      {"==", Comparison::kEqual},  {"!=", Comparison::kNotEqual},
      {"<", Comparison::kLess},    {"<=", Comparison::kLessEqual},
      {">", Comparison::kGreater}, {">=", Comparison::kGreaterEqual}};
  for (const auto& [symbol, which] : kSymbols) {
    if (tokens_.SkipOperator(symbol)) {
      *comparison = which;
      return true;
    }
  }
  *comparison = Comparison::kIn;
  if (tokens_.SkipName("in")) return true;
  if (!tokens_.Current().IsName("not") || !tokens_.Next().IsName("in")) return false;
  tokens_.Take();
  tokens_.Take();
  *comparison = Comparison::kNotIn;
  return true;
}

ExpressionPtr ExpressionParser::ParseCompare() {
  const int line = tokens_.Current().line;
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

ExpressionPtr ExpressionParser::ParseLeftAssociative(
    std::initializer_list<std::pair<const char*, BinaryOperator>> operators, Level operand) {
  ExpressionPtr left = (this->*operand)();
  while (true) {
    const auto* op = std::find_if(operators.begin(), operators.end(), [&](const auto& candidate) {
      return tokens_.Current().IsOperator(candidate.first);
    });
    if (op == operators.end()) return left;
    const int line = tokens_.Take().line;
    left = MakeOf(Expression::Kind::kBinary, line, std::move(left), (this->*operand)());
    left->op = op->second;
  }
}

ExpressionPtr ExpressionParser::ParseSum() {
  return ParseLeftAssociative({{"+", BinaryOperator::kAdd}, {"-", BinaryOperator::kSubtract}},
                              &ExpressionParser::ParseConcat);
}

ExpressionPtr ExpressionParser::ParseConcat() {
  const int line = tokens_.Current().line;
  std::vector<ExpressionPtr> parts;
  do {
    parts.push_back(ParseProduct());
  } while (tokens_.SkipOperator("~"));
  if (parts.size() == 1) return std::move(parts[0]);
  return Make(Expression::Kind::kConcat, line, std::move(parts));
}

ExpressionPtr ExpressionParser::ParseProduct() {
  return ParseLeftAssociative({{"*", BinaryOperator::kMultiply},
                               {"/", BinaryOperator::kDivide},
                               {"//", BinaryOperator::kFloorDivide},
                               {"%", BinaryOperator::kModulo}},
                              &ExpressionParser::ParsePower);
}

ExpressionPtr ExpressionParser::ParsePower() {
  return ParseLeftAssociative({{"**", BinaryOperator::kPower}},
                              &ExpressionParser::ParseFilteredUnary);
}

ExpressionPtr ExpressionParser::ParseFilteredUnary() { return ParseUnary(true); }

ExpressionPtr ExpressionParser::ParseUnary(bool with_filters) {
  const TokenReader::Nested nested(tokens_);
  const int line = tokens_.Current().line;
  ExpressionPtr node;
  if (tokens_.SkipOperator("-")) {
    node = MakeOf(Expression::Kind::kNegate, line, ParseUnary(false));
  } else if (tokens_.SkipOperator("+")) {
    node = MakeOf(Expression::Kind::kPlus, line, ParseUnary(false));
  } else {
    node = ParsePrimary();
  }
  node = ParsePostfix(std::move(node));
  return with_filters ? ParseFilterExpression(std::move(node)) : std::move(node);
}

// ---- operands

ExpressionPtr ExpressionParser::ParsePrimary() {
  const Token& token = tokens_.Current();
  const int line = token.line;
  switch (token.kind) {
    case TokenKind::kName:
      return ParseNameOrConstant();
    case TokenKind::kString: {
      std::string text;
      while (tokens_.Current().kind == TokenKind::kString) text += tokens_.Take().text;
      return MakeLiteral(Value::Str(std::move(text), Origin::kTemplate), line);
    }
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return MakeLiteral(tokens_.Take().number, line);
    case TokenKind::kOperator:
      break;
    default:
      tokens_.Fail(fmt::format("unexpected '{}'", DescribeToken(token)));
  }
  if (tokens_.SkipOperator("(")) {
    ExpressionPtr inner = ParseTuple({.parentheses = true});
    tokens_.ExpectOperator(")");
    return inner;
  }
  if (token.IsOperator("[")) return ParseList();
  if (token.IsOperator("{")) return ParseDict();
  tokens_.Fail(fmt::format("unexpected '{}'", DescribeToken(token)));
}

ExpressionPtr ExpressionParser::ParseList() {
  const int line = tokens_.Take().line;
  std::vector<ExpressionPtr> items;
  while (!tokens_.Current().IsOperator("]")) {
    if (!items.empty()) tokens_.ExpectOperator(",");
    if (tokens_.Current().IsOperator("]")) break;
    items.push_back(ParseExpression());
  }
  tokens_.ExpectOperator("]");
  return Make(Expression::Kind::kList, line, std::move(items));
}

ExpressionPtr ExpressionParser::ParseDict() {
  const int line = tokens_.Take().line;
  std::vector<ExpressionPtr> items;
  while (!tokens_.Current().IsOperator("}")) {
    if (!items.empty()) tokens_.ExpectOperator(",");
    if (tokens_.Current().IsOperator("}")) break;
    items.push_back(ParseExpression());
    tokens_.ExpectOperator(":");
    items.push_back(ParseExpression());
  }
  tokens_.ExpectOperator("}");
  return Make(Expression::Kind::kDict, line, std::move(items));
}

ExpressionPtr ExpressionParser::ParseNameOrConstant() {
  const Token name = tokens_.Take();
  if (name.text == "true" || name.text == "True") return MakeLiteral(Value::Bool(true), name.line);
  if (name.text == "false" || name.text == "False") {
    return MakeLiteral(Value::Bool(false), name.line);
  }
  if (name.text == "none" || name.text == "None") return MakeLiteral(Value::None(), name.line);
  ExpressionPtr node = Make(Expression::Kind::kName, name.line);
  node->name = name.text;
  node->symbol = names_.Intern(name.text);
  names_.Mention(node->symbol);
  return node;
}

// ---- what follows an operand

ExpressionPtr ExpressionParser::ParsePostfix(ExpressionPtr node) {
  while (true) {
    if (tokens_.Current().IsOperator(".")) {
      node = ParseAttribute(std::move(node));
    } else if (tokens_.Current().IsOperator("[")) {
      node = ParseSubscript(std::move(node));
    } else if (tokens_.Current().IsOperator("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::ParseFilterExpression(ExpressionPtr node) {
  while (true) {
    if (tokens_.Current().IsOperator("|")) {
      node = ParseFilters(std::move(node), false);
    } else if (tokens_.Current().IsName("is")) {
      node = ParseTest(std::move(node));
    } else if (tokens_.Current().IsOperator("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::ParseAttribute(ExpressionPtr object) {
  const int line = tokens_.Take().line;
  const Token name = tokens_.Take();
  if (name.kind == TokenKind::kName) {
    ExpressionPtr node = MakeOf(Expression::Kind::kAttribute, line, std::move(object));
    node->name = name.text;
    return node;
  }
  if (name.kind != TokenKind::kInteger) tokens_.Fail("expected name or number", name.line);
  return MakeOf(Expression::Kind::kItem, line, std::move(object),
                MakeLiteral(name.number, name.line));
}

ExpressionPtr ExpressionParser::ParseSubscript(ExpressionPtr object) {
  const int line = tokens_.Take().line;
  std::vector<ExpressionPtr> keys;
  bool slice = false;
  while (!tokens_.Current().IsOperator("]")) {
    if (!keys.empty()) tokens_.ExpectOperator(",");
    keys.push_back(ParseSubscribed(object, &slice));
  }
  tokens_.ExpectOperator("]");
  if (slice) {
    // Python has no use for x[a:b, c] on the values of a template.
    if (keys.size() > 1) tokens_.Fail("unsupported subscript", line);
    return std::move(keys[0]);
  }
  ExpressionPtr key =
      keys.size() == 1 ? std::move(keys[0]) : Make(Expression::Kind::kTuple, line, std::move(keys));
  return MakeOf(Expression::Kind::kItem, line, std::move(object), std::move(key));
}

// One key, or a slice, which takes over `object`.
ExpressionPtr ExpressionParser::ParseSubscribed(ExpressionPtr& object, bool* slice) {
  const int line = tokens_.Current().line;
  ExpressionPtr bounds[3];
  if (!tokens_.Current().IsOperator(":")) {
    bounds[0] = ParseExpression();
    if (!tokens_.Current().IsOperator(":")) return std::move(bounds[0]);
  }
  for (int i = 1; i < 3 && tokens_.SkipOperator(":"); ++i) {
    if (!tokens_.Current().IsOperator(":") && !tokens_.Current().IsOperator("]") &&
        !tokens_.Current().IsOperator(",")) {
      bounds[i] = ParseExpression();
    }
  }
  if (*slice || !object) tokens_.Fail("unsupported subscript", line);
  *slice = true;
  return MakeOf(Expression::Kind::kSlice, line, std::move(object), std::move(bounds[0]),
                std::move(bounds[1]), std::move(bounds[2]));
}

std::unique_ptr<Arguments> ExpressionParser::ParseArguments(int* height) {
  const int line = tokens_.Current().line;
  tokens_.ExpectOperator("(");
  auto arguments = std::make_unique<Arguments>();
  const auto ensure = [&](bool valid) {
    if (!valid) tokens_.Fail("invalid syntax for function call expression", line);
  };
  const auto parse = [&] {
    ExpressionPtr value = ParseExpression();
    *height = std::max(*height, value->height);
    return value;
  };
  for (bool first = true; !tokens_.Current().IsOperator(")"); first = false) {
    if (!first) {
      tokens_.ExpectOperator(",");
      if (tokens_.Current().IsOperator(")")) break;
    }
    if (tokens_.SkipOperator("*")) {
      ensure(!arguments->spread && !arguments->keyword_spread);
      arguments->spread = parse();
    } else if (tokens_.SkipOperator("**")) {
      ensure(!arguments->keyword_spread);
      arguments->keyword_spread = parse();
    } else if (tokens_.Current().kind == TokenKind::kName && tokens_.Next().IsOperator("=")) {
      ensure(!arguments->keyword_spread);
      const std::string key = tokens_.Take().text;
      tokens_.Take();
      arguments->keyword.emplace_back(key, parse());
    } else {
      ensure(!arguments->spread && !arguments->keyword_spread && arguments->keyword.empty());
      arguments->positional.push_back(parse());
    }
  }
  tokens_.ExpectOperator(")");
  return arguments;
}

ExpressionPtr ExpressionParser::ParseCall(ExpressionPtr callee) {
  const int line = tokens_.Current().line;
  int height = 0;
  auto arguments = ParseArguments(&height);
  ExpressionPtr node = MakeOf(Expression::Kind::kCall, line, std::move(callee));
  Attach(*node, std::move(arguments), height);
  return node;
}

std::string ExpressionParser::ParseDottedName() {
  std::string name = tokens_.ExpectName().text;
  while (tokens_.SkipOperator(".")) name += "." + tokens_.ExpectName().text;
  return name;
}

ExpressionPtr ExpressionParser::ParseFilters(ExpressionPtr node, bool inline_start) {
  while (inline_start || tokens_.Current().IsOperator("|")) {
    if (!inline_start) tokens_.Take();
    inline_start = false;
    const int line = tokens_.Current().line;
    const std::string name = ParseDottedName();
    ExpressionPtr filter = MakeOf(Expression::Kind::kFilter, line, std::move(node));
    filter->name = name;
    filter->filter = FindFilter(name);
    if (filter->filter == nullptr) Unknown(fmt::format("No filter named '{}'.", name), line);
    int height = 0;
    std::unique_ptr<Arguments> arguments =
        tokens_.Current().IsOperator("(") ? ParseArguments(&height) : std::make_unique<Arguments>();
    Attach(*filter, std::move(arguments), height);
    node = std::move(filter);
  }
  return node;
}

ExpressionPtr ExpressionParser::ParseTest(ExpressionPtr node) {
  const int line = tokens_.Take().line;
  const bool negated = tokens_.SkipName("not");
  const std::string name = ParseDottedName();
  ExpressionPtr test = MakeOf(Expression::Kind::kTest, line, std::move(node));
  test->name = name;
  test->test = FindTest(name);
  if (test->test == nullptr) Unknown(fmt::format("No test named '{}'.", name), line);
  int height = 0;
  auto arguments = std::make_unique<Arguments>();
  if (tokens_.Current().IsOperator("(")) {
    arguments = ParseArguments(&height);
  } else if (BeginsTestArgument()) {
    if (tokens_.Current().IsName("is")) tokens_.Fail("You cannot chain multiple tests with is");
    ExpressionPtr argument = ParsePostfix(ParsePrimary());
    height = argument->height;
    arguments->positional.push_back(std::move(argument));
  }
  Attach(*test, std::move(arguments), height);
  return negated ? MakeOf(Expression::Kind::kNot, line, std::move(test)) : std::move(test);
}

bool ExpressionParser::BeginsTestArgument() const {
  const Token& token = tokens_.Current();
  switch (token.kind) {
    case TokenKind::kName:
      return !tokens_.AtAny({"else", "or", "and"});
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return true;
    default:
      return token.IsOperator("[") || token.IsOperator("{");
  }
}

void ExpressionParser::Unknown(std::string message, int line) {
  if (!soft_) unknown_.emplace_back(std::move(message), line);
}

}  // namespace mference::jinja
