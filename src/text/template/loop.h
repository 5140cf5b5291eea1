// The `loop` variable: what a running for statement tells its body.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "text/template/ast.h"
#include "text/template/interpreter.h"
#include "text/template/object.h"

namespace mference::jinja {

// Pulls items on demand, one ahead where the body asks for the next, so that a condition that
// depends on what earlier iterations did sees it.
class Loop : public Object {
 public:
  Loop(const Statement& statement, std::shared_ptr<Scope> scope, std::unique_ptr<ItemSource> source,
       std::optional<int64_t> length, int depth);

  // Moves to the next item; false at the end.
  bool Advance(Value* item);
  bool started() const { return index0_ >= 0; }
  // Drops everything that it refers to.
  void Clear();

  std::string type_name() const override { return "LoopContext"; }
  std::string Repr() const override;
  std::optional<Value> Attribute(Interpreter& interpreter, std::string_view name) override;
  bool callable() const override { return true; }
  Value Call(Interpreter& interpreter, CallArguments arguments) override;
  std::optional<int64_t> Length() const override { return length_; }

 private:
  const std::optional<Value>& PeekNext();
  int64_t CountAll();
  Value Cycle(const CallArguments& arguments) const;
  bool Changed(Interpreter& interpreter, CallArguments& arguments);

  const Statement& statement_;
  std::shared_ptr<Scope> scope_;
  std::unique_ptr<ItemSource> source_;
  std::optional<int64_t> length_;
  int depth_;  // 0 for the outermost of a recursive loop
  int64_t index0_ = -1;
  std::optional<Value> previous_;
  std::optional<Value> current_;
  std::optional<Value> next_;
  std::optional<Value> last_changed_;
};

}  // namespace mference::jinja
