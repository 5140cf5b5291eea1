// Values with behaviour: functions, macros, namespaces, loops, ranges, iterators and bound methods.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/value.h"

namespace mference::jinja {

class Interpreter;

struct CallArguments {
  List positional;
  std::vector<std::pair<std::string, Value>> keyword;
};

// Yields the items of an iterable, one at a time.
class ItemSource {
 public:
  virtual ~ItemSource() = default;
  // False at the end; `item` is then untouched.
  virtual bool Next(Value* item) = 0;
};

class Object {
 public:
  virtual ~Object() = default;

  // Python's name of the type, for messages and repr.
  virtual std::string type_name() const = 0;
  virtual std::string Repr() const { return "<" + type_name() + " object>"; }

  virtual std::optional<Value> Attribute(Interpreter&, std::string_view /*name*/) { return {}; }
  virtual std::optional<Value> Item(Interpreter&, const Value& /*key*/) { return {}; }

  virtual bool callable() const { return false; }
  virtual Value Call(Interpreter& interpreter, CallArguments arguments);  // throws: not callable

  // Null when not iterable.
  virtual std::unique_ptr<ItemSource> Iterate(const std::shared_ptr<Object>& /*self*/) {
    return {};
  }
  virtual std::optional<int64_t> Length() const { return {}; }
  virtual bool subscriptable() const { return false; }
  virtual bool mapping() const { return false; }
  virtual bool Equals(const Object& other) const { return this == &other; }
  // As Value::depth and Value::weight.
  virtual uint16_t depth() const { return 1; }
  virtual uint64_t weight() const { return 1; }
};

// A function of the environment, or a method bound to its receiver.
class Function : public Object {
 public:
  using Body = std::function<Value(Interpreter&, CallArguments&)>;
  Function(std::string name, Body body, uint16_t depth = 1)
      : name_(std::move(name)), body_(std::move(body)), depth_(depth) {}

  std::string type_name() const override { return "builtin_function_or_method"; }
  std::string Repr() const override { return "<function " + name_ + ">"; }
  bool callable() const override { return true; }
  Value Call(Interpreter& interpreter, CallArguments arguments) override {
    return body_(interpreter, arguments);
  }
  uint16_t depth() const override { return depth_; }

 private:
  std::string name_;
  Body body_;
  uint16_t depth_;
};

// range(start, stop, step), never expanded.
class Range : public Object {
 public:
  Range(int64_t start, int64_t stop, int64_t step);
  std::string type_name() const override { return "range"; }
  std::string Repr() const override;
  std::optional<Value> Attribute(Interpreter&, std::string_view name) override;
  std::optional<Value> Item(Interpreter&, const Value& key) override;
  std::unique_ptr<ItemSource> Iterate(const std::shared_ptr<Object>& self) override;
  std::optional<int64_t> Length() const override { return length_; }
  bool subscriptable() const override { return true; }
  bool Equals(const Object& other) const override;
  int64_t At(int64_t index) const { return start_ + index * step_; }

 private:
  int64_t start_;
  int64_t stop_;
  int64_t step_;
  int64_t length_;
};

// What a generator or an iterator gives: consumed once.
class Iterator : public Object {
 public:
  Iterator(std::string type, List items);
  std::string type_name() const override { return type_; }
  std::unique_ptr<ItemSource> Iterate(const std::shared_ptr<Object>& self) override;
  uint16_t depth() const override { return depth_; }
  uint64_t weight() const override { return items_.size() + 1; }
  bool Next(Value* item);

 private:
  std::string type_;
  List items_;
  size_t next_ = 0;
  uint16_t depth_;
};

// dict.keys(), .values() or .items().
class DictView : public Object {
 public:
  enum class What { kKeys, kValues, kItems };
  DictView(Value dict, What what);
  std::string type_name() const override;
  std::string Repr() const override;
  std::unique_ptr<ItemSource> Iterate(const std::shared_ptr<Object>& self) override;
  std::optional<int64_t> Length() const override;
  uint16_t depth() const override { return static_cast<uint16_t>(dict_.depth() + 1); }
  uint64_t weight() const override { return dict_.weight(); }
  const Value& dict() const { return dict_; }
  Value At(size_t entry) const;

 private:
  Value dict_;
  What what_;
};

// namespace(): the one mutable value of the language. Namespaces can refer to each other in cycles,
// so the interpreter keeps a list of them and empties them at the end of the render.
class Namespace : public Object {
 public:
  std::string type_name() const override { return "Namespace"; }
  std::string Repr() const override;
  std::optional<Value> Attribute(Interpreter&, std::string_view name) override;
  std::optional<Value> Item(Interpreter&, const Value& key) override;
  bool subscriptable() const override { return true; }
  void Set(std::string_view name, Value value);
  void Clear() { members_ = Dict(); }
  const Dict& members() const { return members_; }

 private:
  Dict members_;
};

}  // namespace mference::jinja
