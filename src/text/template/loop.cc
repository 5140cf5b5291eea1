#include "text/template/loop.h"

#include "text/template/operators.h"

namespace mference::jinja {
namespace {

class QueuedSource : public ItemSource {
 public:
  explicit QueuedSource(List items) : items_(std::move(items)) {}
  bool Next(Value* item) override {
    if (next_ >= items_.size()) return false;
    *item = items_[next_++];
    return true;
  }

 private:
  List items_;
  size_t next_ = 0;
};

}  // namespace

Loop::Loop(const Statement& statement, std::shared_ptr<Scope> scope,
           std::unique_ptr<ItemSource> source, std::optional<int64_t> length, int depth)
    : statement_(statement),
      scope_(std::move(scope)),
      source_(std::move(source)),
      length_(length),
      depth_(depth) {}

bool Loop::Advance(Value* item) {
  if (next_) {
    *item = *std::exchange(next_, std::nullopt);
  } else if (!source_ || !source_->Next(item)) {
    return false;
  }
  ++index0_;
  previous_ = std::exchange(current_, *item);
  return true;
}

void Loop::Clear() {
  scope_.reset();
  source_.reset();
  previous_ = current_ = next_ = last_changed_ = std::nullopt;
}

const std::optional<Value>& Loop::PeekNext() {
  Value item;
  if (!next_ && source_ && source_->Next(&item)) next_ = item;
  return next_;
}

int64_t Loop::CountAll() {
  if (!length_) {
    List rest;
    for (Value item; source_ && source_->Next(&item);) rest.push_back(item);
    length_ = static_cast<int64_t>(rest.size()) + index0_ + 1 + (next_ ? 1 : 0);
    source_ = std::make_unique<QueuedSource>(std::move(rest));
  }
  return *length_;
}

std::string Loop::Repr() const {
  return fmt::format("<LoopContext {}/{}>", index0_ + 1, length_ ? std::to_string(*length_) : "?");
}

std::optional<Value> Loop::Attribute(Interpreter& /*interpreter*/, std::string_view name) {
  if (name == "index0") return Value::Int(index0_);
  if (name == "index") return Value::Int(index0_ + 1);
  if (name == "first") return Value::Bool(index0_ == 0);
  if (name == "last") return Value::Bool(!PeekNext());
  if (name == "length") return Value::Int(CountAll());
  if (name == "revindex") return Value::Int(CountAll() - index0_);
  if (name == "revindex0") return Value::Int(CountAll() - index0_ - 1);
  if (name == "depth") return Value::Int(depth_ + 1);
  if (name == "depth0") return Value::Int(depth_);
  if (name == "previtem") {
    return previous_ ? *previous_ : Value::MakeUndefined("there is no previous item", "previtem");
  }
  if (name == "nextitem") {
    const auto& next = PeekNext();
    return next ? *next : Value::MakeUndefined("there is no next item", "nextitem");
  }
  // The loop outlives these functions: the interpreter holds it until the render ends.
  if (name == "cycle") {
    return Value::MakeObject(std::make_shared<Function>(
        "cycle", [this](Interpreter&, CallArguments& arguments) { return Cycle(arguments); }));
  }
  if (name == "changed") {
    return Value::MakeObject(std::make_shared<Function>(
        "changed", [this](Interpreter& interpreter, CallArguments& arguments) {
          return Value::Bool(Changed(interpreter, arguments));
        }));
  }
  return std::nullopt;
}

Value Loop::Cycle(const CallArguments& arguments) const {
  if (arguments.positional.empty()) RaiseRuntime("no items for cycling given");
  return arguments.positional[static_cast<size_t>(index0_) % arguments.positional.size()];
}

bool Loop::Changed(Interpreter& interpreter, CallArguments& arguments) {
  Value now = Value::MakeTuple(std::move(arguments.positional));
  interpreter.Charge(now.weight());
  if (last_changed_ && Equal(*last_changed_, now)) return false;
  last_changed_ = std::move(now);
  return true;
}

Value Loop::Call(Interpreter& interpreter, CallArguments arguments) {
  if (!statement_.recursive) {
    RaiseRuntime("The loop must have the 'recursive' marker to be called recursively.");
  }
  const auto bound = Bind("loop", arguments, {"iterable"}, 1);
  return interpreter.RenderLoop(statement_, scope_, *bound[0], depth_ + 1);
}

}  // namespace mference::jinja
