// Runs a parsed template: one object, one render.
//
// interpreter.cc keeps the render's accounts; interpreter_statements.cc, interpreter_expressions.cc
// and interpreter_calls.cc run what their names say.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/ast.h"
#include "text/template/builtins.h"
#include "text/template/object.h"
#include "text/template/template.h"

namespace mference::jinja {

// Variables of a block. Chained to the scope around it; macros keep the scope they were defined in.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<Symbol, Value>> variables;
};

class Interpreter {
 public:
  Interpreter(const ParsedTemplate& parsed, const Value& context, const RenderOptions& options);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Renders everything. Throws TemplateError without location; `line()` says where.
  TracedString Run();
  int line() const { return line_; }

  // ---- for filters, tests, methods and objects

  // object.name and object[key] of the language: undefined when there is no such thing.
  Value GetAttribute(const Value& object, std::string_view name);
  Value GetItem(const Value& object, const Value& key);
  Value Call(const Value& callee, CallArguments arguments);
  Value ApplyFilter(std::string_view name, const Value& input, CallArguments arguments);
  bool ApplyTest(std::string_view name, const Value& input, CallArguments arguments);

  // Account for work and memory; throw kLimit beyond the options' bounds.
  void Charge(uint64_t steps);
  void ChargeBytes(uint64_t bytes);
  // Makes a value's size count.
  Value Charged(Value value);

  const std::tm& now() const { return options_.now; }
  std::shared_ptr<Namespace> NewNamespace();

  // ---- for macros and loops

  Value CallMacro(const MacroDefinition& macro, const std::shared_ptr<Scope>& closure,
                  CallArguments arguments);
  // Renders a recursive loop's statement over `iterable`, one level further down.
  Value RenderLoop(const Statement& loop, const std::shared_ptr<Scope>& scope,
                   const Value& iterable, int depth);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  // Bounds recursion: every level of evaluation holds one.
  class DepthGuard {
   public:
    explicit DepthGuard(Interpreter& interpreter);  // throws kLimit beyond the options' depth
    ~DepthGuard() { --interpreter_.depth_; }
    DepthGuard(const DepthGuard&) = delete;
    DepthGuard& operator=(const DepthGuard&) = delete;

   private:
    Interpreter& interpreter_;
  };

  // Sends the output to `text` for as long as it lives.
  class Redirection {
   public:
    Redirection(Interpreter& interpreter, TracedString* text)
        : interpreter_(interpreter), before_(std::exchange(interpreter.output_, text)) {}
    ~Redirection() { interpreter_.output_ = before_; }
    Redirection(const Redirection&) = delete;
    Redirection& operator=(const Redirection&) = delete;

   private:
    Interpreter& interpreter_;
    TracedString* before_;
  };

  // ---- accounting
  void Emit(const TracedString& text);
  TracedString TextOf(const Value& value);  // str(value), paid for

  // ---- statements
  Flow RunBody(const Body& body, const std::shared_ptr<Scope>& scope);
  Flow RunStatement(const Statement& statement, const std::shared_ptr<Scope>& scope);
  Flow RunIf(const Statement& statement, const std::shared_ptr<Scope>& scope);
  Flow RunFor(const Statement& statement, const std::shared_ptr<Scope>& scope,
              const Value& iterable, int depth);
  void RunSetBlock(const Statement& statement, const std::shared_ptr<Scope>& scope);
  void RunCallBlock(const Statement& statement, const std::shared_ptr<Scope>& scope);
  void RunScoped(const Statement& statement, const std::shared_ptr<Scope>& scope);
  // Renders `body` in a scope of its own and returns its text.
  TracedString Capture(const Body& body, const std::shared_ptr<Scope>& scope);
  void Assign(const Target& target, Value value, const std::shared_ptr<Scope>& scope);
  static void SetVariable(Scope& scope, Symbol symbol, Value value);

  // ---- expressions
  Value Evaluate(const Expression& node, const std::shared_ptr<Scope>& scope);
  Value EvaluateName(const Expression& node, const Scope& scope);
  Value EvaluateSlice(const Expression& node, const std::shared_ptr<Scope>& scope);
  Value EvaluateConcat(const Expression& node, const std::shared_ptr<Scope>& scope);
  Value EvaluateCompare(const Expression& node, const std::shared_ptr<Scope>& scope);
  Value EvaluateFilter(const Expression& node, const std::shared_ptr<Scope>& scope,
                       const Value* block_input);
  bool HoldsComparison(Comparison comparison, const Value& a, const Value& b);

  // ---- calls
  CallArguments EvaluateArguments(const Arguments& arguments, const std::shared_ptr<Scope>& scope);
  Value MakeMacro(const MacroDefinition& macro, const std::shared_ptr<Scope>& scope);
  // Sets the parameters of `macro` in `scope`, the implicit ones too; defaults may refer to those
  // before them.
  void BindParameters(const MacroDefinition& macro, CallArguments arguments,
                      const std::shared_ptr<Scope>& scope);

  const ParsedTemplate& parsed_;
  const Value& context_;
  const RenderOptions& options_;
  std::shared_ptr<Scope> root_;
  TracedString* output_ = nullptr;
  std::vector<std::optional<Value>> outer_;  // by symbol: what the context or the globals have
  int line_ = 0;
  int depth_ = 0;
  uint64_t steps_ = 0;
  uint64_t bytes_ = 0;

  // What can refer to itself, emptied at the end so that it is freed.
  std::vector<std::shared_ptr<Scope>> captured_scopes_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<Object>> loops_;
};

}  // namespace mference::jinja
