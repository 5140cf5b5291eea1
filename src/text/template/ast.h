// The parsed template: a tree of statements and expressions, immutable after parsing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/template/operators.h"
#include "text/template/value.h"

namespace mference::jinja {

struct Expression;
struct FilterEntry;
struct Statement;
struct TestEntry;
using ExpressionPtr = std::unique_ptr<Expression>;
using StatementPtr = std::unique_ptr<Statement>;
using Body = std::vector<StatementPtr>;

// Variable names are numbered at parse time; ParsedTemplate::symbols has the texts.
using Symbol = uint32_t;

struct Arguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> keyword;
  ExpressionPtr spread;          // *args
  ExpressionPtr keyword_spread;  // **kwargs
};

enum class Comparison {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

struct Expression {
  enum class Kind {
    kLiteral,    // literal
    kName,       // symbol, name
    kList,       // operands
    kTuple,      // operands
    kDict,       // operands: key, value, key, value, ...
    kAttribute,  // operands[0] . name
    kItem,       // operands[0] [ operands[1] ]
    kSlice,    // operands[0] [ operands[1] : operands[2] : operands[3] ], each of the three or null
    kCall,     // operands[0] ( arguments )
    kFilter,   // operands[0] | name ( arguments ); operands[0] is null in filter and set blocks
    kTest,     // operands[0] is name ( arguments )
    kNot,      // operands[0]
    kNegate,   // operands[0]
    kPlus,     // operands[0]
    kAnd,      // operands[0], operands[1]
    kOr,       // operands[0], operands[1]
    kBinary,   // operands[0] op operands[1]
    kConcat,   // operands, joined as text
    kCompare,  // operands[0] comparisons[0] operands[1] comparisons[1] ...
    kConditional,  // operands: value, condition, alternative or null
  };

  Kind kind = Kind::kLiteral;
  int line = 0;
  int height = 1;  // of the tree below, bounded by the parser
  Value literal;
  Symbol symbol = 0;
  std::string name;
  std::vector<ExpressionPtr> operands;
  BinaryOperator op = BinaryOperator::kAdd;
  std::vector<Comparison> comparisons;
  std::unique_ptr<Arguments> arguments;
  const FilterEntry* filter = nullptr;  // null: unknown, an error when it is reached
  const TestEntry* test = nullptr;
};

// What an assignment or a loop writes to.
struct Target {
  enum class Kind { kName, kNamespaceMember, kTuple };
  Kind kind = Kind::kName;
  Symbol symbol = 0;
  std::string member;
  std::vector<Target> parts;
};

struct MacroDefinition {
  std::string name;
  Symbol symbol = 0;
  std::vector<Symbol> parameters;
  std::vector<std::string> parameter_names;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  Body body;
  bool takes_varargs = false;  // the body mentions them
  bool takes_kwargs = false;
  bool takes_caller = false;
};

struct Branch {
  ExpressionPtr condition;  // null for else
  Body body;
};

struct Statement {
  enum class Kind {
    kText,         // literal
    kPrint,        // expression
    kIf,           // branches
    kFor,          // target, expression, condition, body, otherwise, recursive, uses_loop
    kSet,          // target, expression
    kSetBlock,     // target, expression (a filter chain, or null), body
    kFilterBlock,  // expression (a filter chain), body
    kMacro,        // macro
    kCallBlock,    // expression (a call), macro (its caller)
    kWith,         // assignments, body
    kScope,        // body in a scope of its own
    kBlock,        // body; sees top-level variables only, unless scoped
    kBreak,
    kContinue,
    kRefused,  // name of a statement that needs other templates
  };

  Kind kind = Kind::kText;
  int line = 0;
  Value literal;
  std::string name;
  ExpressionPtr expression;
  ExpressionPtr condition;
  Target target;
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  std::vector<Branch> branches;
  Body body;
  Body otherwise;
  std::unique_ptr<MacroDefinition> macro;
  bool recursive = false;
  bool uses_loop = false;
  bool scoped = false;
};

// Symbols that the language itself defines, at these numbers.
inline constexpr Symbol kLoopSymbol = 0;
inline constexpr Symbol kCallerSymbol = 1;
inline constexpr Symbol kVarargsSymbol = 2;
inline constexpr Symbol kKwargsSymbol = 3;

struct ParsedTemplate {
  std::string name;
  std::vector<std::string> symbols;
  Body body;
};

}  // namespace mference::jinja
