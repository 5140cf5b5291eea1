// Methods of lists, dictionaries and numbers, and the lookup of all methods.
#include <algorithm>
#include <array>
#include <cmath>

#include "text/template/builtins.h"
#include "text/template/interpreter.h"
#include "text/template/operators.h"
#include "text/template/python_text.h"

namespace mference::jinja {
namespace {

using Method = Value (*)(Interpreter&, const Value& receiver, CallArguments&);

struct MethodEntry {
  const char* name;
  Method apply;  // null: the sandbox hides it, because it mutates
};

Value ListCount(Interpreter& interpreter, const Value& receiver, CallArguments& arguments) {
  const auto bound = Bind("count", arguments, {"value"}, 1);
  interpreter.Charge(receiver.weight());
  return Value::Int(std::count_if(receiver.items().begin(), receiver.items().end(),
                                  [&](const Value& item) { return Equal(item, *bound[0]); }));
}

Value ListIndex(Interpreter& interpreter, const Value& receiver, CallArguments& arguments) {
  const auto bound = Bind("index", arguments, {"value", "start", "stop"}, 1);
  interpreter.Charge(receiver.weight());
  const List& items = receiver.items();
  const SliceRange range = ResolveSlice(bound[1].value_or(Value()), bound[2].value_or(Value()),
                                        Value(), static_cast<int64_t>(items.size()));
  for (int64_t i = range.start; i < range.start + range.count; ++i) {
    if (Equal(items[static_cast<size_t>(i)], *bound[0])) return Value::Int(i);
  }
  RaiseRuntime(fmt::format("{} is not in list", Repr(*bound[0])));
}

Value Copy(Interpreter& /*interpreter*/, const Value& receiver, CallArguments& arguments) {
  Bind("copy", arguments, {});
  return receiver;  // immutable, so the same
}

Value DictGet(Interpreter& interpreter, const Value& receiver, CallArguments& arguments) {
  const auto bound = Bind("get", arguments, {"key", "default"}, 1);
  interpreter.Charge(bound[0]->weight());
  const Value* found = receiver.dict().Find(*bound[0]);
  return found != nullptr ? *found : bound[1].value_or(Value());
}

template <DictView::What what>
Value View(Interpreter& /*interpreter*/, const Value& receiver, CallArguments& arguments) {
  Bind("view", arguments, {});
  return Value::MakeObject(std::make_shared<DictView>(receiver, what));
}

Value BitLength(Interpreter& /*interpreter*/, const Value& receiver, CallArguments& arguments) {
  Bind("bit_length", arguments, {});
  const BigInt number = receiver.IsBool() ? BigInt(receiver.boolean() ? 1 : 0) : receiver.big_int();
  return Value::Int(static_cast<int64_t>(number.bits()));
}

Value IsInteger(Interpreter& /*interpreter*/, const Value& receiver, CallArguments& arguments) {
  Bind("is_integer", arguments, {});
  const double number = receiver.number().number;
  return Value::Bool(std::isfinite(number) && number == std::floor(number));
}

constexpr auto kListMethods = std::to_array<MethodEntry>({
    {"append", nullptr},
    {"clear", nullptr},
    {"copy", Copy},
    {"count", ListCount},
    {"extend", nullptr},
    {"index", ListIndex},
    {"insert", nullptr},
    {"pop", nullptr},
    {"remove", nullptr},
    {"reverse", nullptr},
    {"sort", nullptr},
});

constexpr auto kTupleMethods = std::to_array<MethodEntry>({
    {"count", ListCount},
    {"index", ListIndex},
});

constexpr auto kDictMethods = std::to_array<MethodEntry>({
    {"clear", nullptr},
    {"copy", Copy},
    {"get", DictGet},
    {"items", View<DictView::What::kItems>},
    {"keys", View<DictView::What::kKeys>},
    {"pop", nullptr},
    {"popitem", nullptr},
    {"setdefault", nullptr},
    {"update", nullptr},
    {"values", View<DictView::What::kValues>},
});

constexpr auto kIntMethods = std::to_array<MethodEntry>({{"bit_length", BitLength}});
constexpr auto kFloatMethods = std::to_array<MethodEntry>({{"is_integer", IsInteger}});

Value Forbidden(const Value& receiver, std::string_view name) {
  return Value::MakeForbidden(
      fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, TypeName(receiver)),
      std::string(name));
}

Value BoundMethod(const Value& receiver, const char* name, Method method) {
  return Value::MakeObject(std::make_shared<Function>(
      name,
      [receiver, method](Interpreter& interpreter, CallArguments& arguments) {
        return method(interpreter, receiver, arguments);
      },
      static_cast<uint16_t>(receiver.depth() + 1)));
}

template <size_t N>
std::optional<Value> FindIn(const std::array<MethodEntry, N>& methods, const Value& receiver,
                            std::string_view name) {
  for (const MethodEntry& entry : methods) {
    if (entry.name != name) continue;
    return entry.apply == nullptr ? Forbidden(receiver, name)
                                  : BoundMethod(receiver, entry.name, entry.apply);
  }
  return std::nullopt;
}

std::optional<Value> FindStringMethod(const Value& receiver, std::string_view name) {
  if (!IsStringMethod(name)) return std::nullopt;
  return Value::MakeObject(std::make_shared<Function>(
      std::string(name),
      [receiver, method = std::string(name)](Interpreter& interpreter, CallArguments& arguments) {
        return CallStringMethod(interpreter, receiver, method, arguments);
      }));
}

}  // namespace

std::optional<Value> FindMethod(const Value& receiver, std::string_view name) {
  // Every Python object has attributes of this form, and the sandbox hides them all.
  if (name.size() > 4 && name.substr(0, 2) == "__" && name.substr(name.size() - 2) == "__") {
    return Forbidden(receiver, name);
  }
  switch (receiver.kind()) {
    case Value::Kind::kString:
      return FindStringMethod(receiver, name);
    case Value::Kind::kList:
      return FindIn(kListMethods, receiver, name);
    case Value::Kind::kTuple:
      return FindIn(kTupleMethods, receiver, name);
    case Value::Kind::kDict:
      return FindIn(kDictMethods, receiver, name);
    case Value::Kind::kBool:
    case Value::Kind::kInt:
      return FindIn(kIntMethods, receiver, name);
    case Value::Kind::kFloat:
      return FindIn(kFloatMethods, receiver, name);
    default:
      return std::nullopt;
  }
}

std::vector<std::optional<Value>> Bind(const char* function, CallArguments& arguments,
                                       std::initializer_list<const char*> parameters,
                                       size_t required) {
  std::vector<std::optional<Value>> bound(parameters.size());
  if (arguments.positional.size() > parameters.size()) {
    RaiseRuntime(fmt::format("{}() takes at most {} arguments ({} given)", function,
                             parameters.size(), arguments.positional.size()));
  }
  std::move(arguments.positional.begin(), arguments.positional.end(), bound.begin());
  for (auto& [name, value] : arguments.keyword) {
    const auto* parameter =
        std::find_if(parameters.begin(), parameters.end(),
                     [&, &key = name](const char* candidate) { return key == candidate; });
    if (parameter == parameters.end()) {
      RaiseRuntime(fmt::format("{}() got an unexpected keyword argument '{}'", function, name));
    }
    auto& slot = bound[static_cast<size_t>(parameter - parameters.begin())];
    if (slot)
      RaiseRuntime(fmt::format("{}() got multiple values for argument '{}'", function, name));
    slot = std::move(value);
  }
  for (size_t i = 0; i < required; ++i) {
    if (!bound[i]) {
      RaiseRuntime(
          fmt::format("{}() missing required argument '{}'", function, parameters.begin()[i]));
    }
  }
  return bound;
}

}  // namespace mference::jinja
