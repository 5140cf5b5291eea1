// The interpreter: statements and assignments.
#include "text/template/interpreter.h"
#include "text/template/loop.h"
#include "text/template/operators.h"
#include "text/template/python_text.h"

namespace mference::jinja {
namespace {

// A filtered loop's items: those for which the condition holds, tested when they are pulled.
class FilteredSource : public ItemSource {
 public:
  FilteredSource(std::unique_ptr<ItemSource> source, std::function<bool(const Value&)> keep)
      : source_(std::move(source)), keep_(std::move(keep)) {}
  bool Next(Value* item) override {
    for (Value candidate; source_->Next(&candidate);) {
      if (!keep_(candidate)) continue;
      *item = std::move(candidate);
      return true;
    }
    return false;
  }

 private:
  std::unique_ptr<ItemSource> source_;
  std::function<bool(const Value&)> keep_;
};

}  // namespace

Interpreter::Flow Interpreter::RunBody(const Body& body, const std::shared_ptr<Scope>& scope) {
  const DepthGuard guard(*this);
  for (const StatementPtr& statement : body) {
    Charge(1);
    line_ = statement->line;
    const Flow flow = RunStatement(*statement, scope);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::RunStatement(const Statement& statement,
                                            const std::shared_ptr<Scope>& scope) {
  switch (statement.kind) {
    case Statement::Kind::kText:
      Emit(statement.literal.string().traced);
      break;
    case Statement::Kind::kPrint: {
      const Value value = Evaluate(*statement.expression, scope);
      Emit(TextOf(value));
      break;
    }
    case Statement::Kind::kIf:
      return RunIf(statement, scope);
    case Statement::Kind::kFor:
      return RunFor(statement, scope, Evaluate(*statement.expression, scope), 0);
    case Statement::Kind::kSet:
      Assign(statement.target, Evaluate(*statement.expression, scope), scope);
      break;
    case Statement::Kind::kSetBlock:
      RunSetBlock(statement, scope);
      break;
    case Statement::Kind::kFilterBlock: {
      const Value text = Value::Str(Capture(statement.body, scope));
      Emit(Str(EvaluateFilter(*statement.expression, scope, &text)));
      break;
    }
    case Statement::Kind::kMacro:
      SetVariable(*scope, statement.macro->symbol, MakeMacro(*statement.macro, scope));
      break;
    case Statement::Kind::kCallBlock:
      RunCallBlock(statement, scope);
      break;
    case Statement::Kind::kWith:
    case Statement::Kind::kScope:
    case Statement::Kind::kBlock:
      RunScoped(statement, scope);
      break;
    case Statement::Kind::kBreak:
      return Flow::kBreak;
    case Statement::Kind::kContinue:
      return Flow::kContinue;
    case Statement::Kind::kRefused:
      RaiseRuntime(fmt::format("'{}': a chat template cannot use other templates", statement.name));
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::RunIf(const Statement& statement,
                                     const std::shared_ptr<Scope>& scope) {
  for (const Branch& branch : statement.branches) {
    if (branch.condition && !Truth(Evaluate(*branch.condition, scope))) continue;
    return RunBody(branch.body, scope);
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::RunFor(const Statement& statement,
                                      const std::shared_ptr<Scope>& scope, const Value& iterable,
                                      int depth) {
  std::unique_ptr<ItemSource> source = Iterate(iterable);
  std::optional<int64_t> length = Length(iterable);
  if (statement.condition) {
    length.reset();
    source = std::make_unique<FilteredSource>(std::move(source), [&, scope](const Value& item) {
      Charge(1);
      const auto test_scope = std::make_shared<Scope>(Scope{scope, {}});
      Assign(statement.target, item, test_scope);
      return Truth(Evaluate(*statement.condition, test_scope));
    });
  }
  auto loop = std::make_shared<Loop>(statement, scope, std::move(source), length, depth);
  if (statement.uses_loop) {
    ChargeBytes(sizeof(Loop));
    loops_.push_back(loop);
  }
  std::shared_ptr<Scope> inner;
  for (Value item; loop->Advance(&item);) {
    Charge(1);
    if (inner && inner.use_count() == 1) {
      inner->variables.clear();
    } else {
      inner = std::make_shared<Scope>(Scope{scope, {}});
    }
    if (statement.uses_loop) SetVariable(*inner, kLoopSymbol, Value::MakeObject(loop));
    Assign(statement.target, std::move(item), inner);
    if (RunBody(statement.body, inner) == Flow::kBreak) break;
    item = Value();
  }
  if (!loop->started() && !statement.otherwise.empty()) {
    return RunBody(statement.otherwise, std::make_shared<Scope>(Scope{scope, {}}));
  }
  return Flow::kNext;
}

Value Interpreter::RenderLoop(const Statement& loop, const std::shared_ptr<Scope>& scope,
                              const Value& iterable, int depth) {
  const DepthGuard guard(*this);
  TracedString text;
  const Redirection redirection(*this, &text);
  RunFor(loop, scope, iterable, depth);
  return Value::Str(std::move(text));
}

TracedString Interpreter::Capture(const Body& body, const std::shared_ptr<Scope>& scope) {
  TracedString text;
  const Redirection redirection(*this, &text);
  if (RunBody(body, std::make_shared<Scope>(Scope{scope, {}})) != Flow::kNext) {
    RaiseRuntime("'break' inside of a captured block");
  }
  return text;
}

void Interpreter::RunSetBlock(const Statement& statement, const std::shared_ptr<Scope>& scope) {
  Value text = Value::Str(Capture(statement.body, scope));
  if (statement.expression) text = EvaluateFilter(*statement.expression, scope, &text);
  Assign(statement.target, std::move(text), scope);
}

void Interpreter::RunCallBlock(const Statement& statement, const std::shared_ptr<Scope>& scope) {
  const Expression& call = *statement.expression;
  const Value callee = Evaluate(*call.operands[0], scope);
  CallArguments arguments = EvaluateArguments(*call.arguments, scope);
  arguments.keyword.emplace_back("caller", MakeMacro(*statement.macro, scope));
  Emit(Str(Call(callee, std::move(arguments))));
}

void Interpreter::RunScoped(const Statement& statement, const std::shared_ptr<Scope>& scope) {
  const bool block = statement.kind == Statement::Kind::kBlock;
  auto inner = std::make_shared<Scope>(Scope{block && !statement.scoped ? root_ : scope, {}});
  for (const auto& [target, expression] : statement.assignments) {
    Assign(target, Evaluate(*expression, scope), inner);
  }
  if (RunBody(statement.body, inner) != Flow::kNext) {
    RaiseRuntime("'break' or 'continue' out of a block");
  }
}

void Interpreter::Assign(const Target& target, Value value, const std::shared_ptr<Scope>& scope) {
  switch (target.kind) {
    case Target::Kind::kName:
      SetVariable(*scope, target.symbol, std::move(value));
      return;
    case Target::Kind::kNamespaceMember: {
      Expression name;
      name.kind = Expression::Kind::kName;
      name.symbol = target.symbol;
      name.name = parsed_.symbols[target.symbol];
      const Value object = EvaluateName(name, *scope);
      auto* space = object.IsObject() ? dynamic_cast<Namespace*>(&object.object()) : nullptr;
      if (space == nullptr) RaiseRuntime("cannot assign attribute on non-namespace object");
      space->Set(target.member, std::move(value));
      return;
    }
    case Target::Kind::kTuple: {
      const auto source = Iterate(value);
      List items;
      for (Value item; items.size() <= target.parts.size() && source->Next(&item);) {
        items.push_back(item);
      }
      if (items.size() > target.parts.size()) {
        RaiseRuntime(fmt::format("too many values to unpack (expected {})", target.parts.size()));
      }
      if (items.size() < target.parts.size()) {
        RaiseRuntime(fmt::format("not enough values to unpack (expected {}, got {})",
                                 target.parts.size(), items.size()));
      }
      for (size_t i = 0; i < items.size(); ++i) Assign(target.parts[i], std::move(items[i]), scope);
      return;
    }
  }
}

void Interpreter::SetVariable(Scope& scope, Symbol symbol, Value value) {
  for (auto& [name, current] : scope.variables) {
    if (name == symbol) {
      current = std::move(value);
      return;
    }
  }
  scope.variables.emplace_back(symbol, std::move(value));
}

}  // namespace mference::jinja
