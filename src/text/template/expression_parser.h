// The parser's lower half: expressions, assignment targets and names, between a tag's markers.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/template/ast.h"
#include "text/template/name_table.h"
#include "text/template/token_reader.h"

namespace mference::jinja {

// Recursive descent, one method for each level of precedence. Reads `tokens` up to the first token
// that does not continue the construct; numbers variables in `names`. Both must outlive it. Errors
// are TemplateError (kSyntax) with a line but no location.
class ExpressionParser {
 public:
  ExpressionParser(TokenReader& tokens, NameTable& names) : tokens_(tokens), names_(names) {}
  ExpressionParser(const ExpressionParser&) = delete;
  ExpressionParser& operator=(const ExpressionParser&) = delete;

  ExpressionPtr ParseExpression();

  struct TupleOptions {
    bool conditional = true;         // whether an item may be `a if b else c`
    const char* end_name = nullptr;  // a name that ends the tuple
    bool parentheses = false;        // where () is the empty tuple
  };
  // Expressions with commas between them: a tuple, or the expression if there is one and no comma.
  ExpressionPtr ParseTuple(TupleOptions options);

  // A chain of filters on `node`; `inline_start` begins with a name instead of a bar.
  ExpressionPtr ParseFilters(ExpressionPtr node, bool inline_start);

  struct TargetOptions {
    const char* end_name = nullptr;  // a name that ends the list of targets
    bool namespace_members = false;  // whether name.member is a target
    bool in_loop = false;            // where `loop` cannot be assigned to
  };
  Target ParseTarget(TargetOptions options);
  Token ParseAssignableName();

  // Inside an `if`, unknown filters and tests are errors only when they are reached; the bodies of
  // loops and macros start afresh. (So the reference compiler does.)
  class Softness {
   public:
    Softness(ExpressionParser& parser, bool soft)
        : parser_(parser), before_(std::exchange(parser.soft_, soft)) {}
    ~Softness() { parser_.soft_ = before_; }
    Softness(const Softness&) = delete;
    Softness& operator=(const Softness&) = delete;

   private:
    ExpressionParser& parser_;
    bool before_;
  };

  // Fails for the first unknown filter or test that is an error even if it is not reached: one that
  // the source has outside of every softness.
  void RequireKnown() const;

 private:
  using Level = ExpressionPtr (ExpressionParser::*)();

  // ---- nodes; too high a tree fails
  ExpressionPtr Make(Expression::Kind kind, int line, std::vector<ExpressionPtr> operands = {});
  template <typename... Operands>
  ExpressionPtr MakeOf(Expression::Kind kind, int line, Operands... operands);
  ExpressionPtr MakeLiteral(Value value, int line);
  void Attach(Expression& node, std::unique_ptr<Arguments> arguments, int height);

  // ---- targets
  bool AtTupleEnd(const char* end_name) const;
  Target ParseSingleTarget(const TargetOptions& options);

  // ---- operators, from the loosest to the tightest
  ExpressionPtr ParseOr();
  ExpressionPtr ParseAnd();
  ExpressionPtr ParseNot();
  ExpressionPtr ParseCompare();
  ExpressionPtr ParseSum();
  ExpressionPtr ParseConcat();
  ExpressionPtr ParseProduct();
  ExpressionPtr ParsePower();
  ExpressionPtr ParseFilteredUnary();
  ExpressionPtr ParseUnary(bool with_filters);
  ExpressionPtr ParseLeftAssociative(
      std::initializer_list<std::pair<const char*, BinaryOperator>> operators, Level operand);
  bool TakeComparison(Comparison* comparison);

  // ---- operands
  ExpressionPtr ParsePrimary();
  ExpressionPtr ParseNameOrConstant();
  ExpressionPtr ParseList();
  ExpressionPtr ParseDict();

  // ---- what follows an operand
  ExpressionPtr ParsePostfix(ExpressionPtr node);
  ExpressionPtr ParseAttribute(ExpressionPtr object);
  ExpressionPtr ParseSubscript(ExpressionPtr object);
  ExpressionPtr ParseSubscribed(ExpressionPtr& object, bool* slice);
  ExpressionPtr ParseCall(ExpressionPtr callee);
  std::unique_ptr<Arguments> ParseArguments(int* height);
  ExpressionPtr ParseFilterExpression(ExpressionPtr node);
  ExpressionPtr ParseTest(ExpressionPtr node);
  bool BeginsTestArgument() const;
  std::string ParseDottedName();
  void Unknown(std::string message, int line);

  TokenReader& tokens_;
  NameTable& names_;
  bool soft_ = false;
  std::vector<std::pair<std::string, int>> unknown_;  // filters and tests, with lines
};

}  // namespace mference::jinja
