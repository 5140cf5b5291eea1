#include "text/template/interpreter.h"

#include "text/template/loop.h"
#include "text/template/operators.h"
#include "text/template/python_text.h"

namespace mference::jinja {

Interpreter::DepthGuard::DepthGuard(Interpreter& interpreter) : interpreter_(interpreter) {
  if (++interpreter_.depth_ > interpreter_.options_.limits.max_depth) {
    --interpreter_.depth_;
    throw TemplateError(TemplateErrorKind::kLimit,
                        fmt::format("evaluation nests deeper than {} levels",
                                    interpreter_.options_.limits.max_depth));
  }
}

Interpreter::Interpreter(const ParsedTemplate& parsed, const Value& context,
                         const RenderOptions& options)
    : parsed_(parsed), context_(context), options_(options), root_(std::make_shared<Scope>()) {
  outer_.resize(parsed.symbols.size());
  captured_scopes_.push_back(root_);
}

Interpreter::~Interpreter() {
  for (const auto& loop : loops_) static_cast<Loop&>(*loop).Clear();
  for (const auto& space : namespaces_) space->Clear();
  for (const auto& scope : captured_scopes_) scope->variables.clear();
}

TracedString Interpreter::Run() {
  TracedString output;
  output_ = &output;
  if (RunBody(parsed_.body, root_) != Flow::kNext) RaiseRuntime("'break' outside of a loop");
  return output;
}

// ---- accounting

void Interpreter::Charge(uint64_t steps) {
  if (steps > options_.limits.max_steps - steps_) {
    throw TemplateError(
        TemplateErrorKind::kLimit,
        fmt::format("the render takes more than {} steps", options_.limits.max_steps));
  }
  steps_ += steps;
}

void Interpreter::ChargeBytes(uint64_t bytes) {
  if (bytes > options_.limits.max_bytes - bytes_) {
    throw TemplateError(
        TemplateErrorKind::kLimit,
        fmt::format("the render makes more than {} bytes of values", options_.limits.max_bytes));
  }
  bytes_ += bytes;
}

Value Interpreter::Charged(Value value) {
  if (value.IsString()) {
    ChargeBytes(value.text().size());
  } else if (value.IsList() || value.IsTuple()) {
    ChargeBytes(value.items().size() * sizeof(Value));
  } else if (value.IsDict()) {
    ChargeBytes(value.dict().size() * sizeof(Dict::Entry));
  } else if (value.IsObject()) {
    ChargeBytes(sizeof(Value));
  }
  return value;
}

TracedString Interpreter::TextOf(const Value& value) {
  if (!value.IsString()) Charge(value.weight());
  return Str(value);
}

void Interpreter::Emit(const TracedString& text) {
  ChargeBytes(text.size());
  if (output_->size() + text.size() > options_.limits.max_output_bytes) {
    throw TemplateError(TemplateErrorKind::kLimit, fmt::format("the output exceeds {} bytes",
                                                               options_.limits.max_output_bytes));
  }
  output_->Append(text);
}

std::shared_ptr<Namespace> Interpreter::NewNamespace() {
  ChargeBytes(sizeof(Namespace));
  namespaces_.push_back(std::make_shared<Namespace>());
  return namespaces_.back();
}

}  // namespace mference::jinja
