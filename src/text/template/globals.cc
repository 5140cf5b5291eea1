// The functions that every template can call.
#include <algorithm>
#include <ctime>

#include "text/template/builtins.h"
#include "text/template/interpreter.h"
#include "text/template/operators.h"
#include "text/template/python_text.h"
#include "text/template/template.h"

namespace mference::jinja {
namespace {

Value MakeFunction(const char* name, Function::Body body) {
  return Value::MakeObject(std::make_shared<Function>(name, std::move(body)));
}

int64_t RangeBound(const Value& value) {
  if (value.IsUndefined()) RaiseUndefined(value);
  const auto bound = AsIndex(value);
  if (!bound) {
    RaiseRuntime(fmt::format("'{}' object cannot be interpreted as an integer", TypeName(value)));
  }
  return *bound;
}

Value MakeRange(Interpreter& /*interpreter*/, CallArguments& arguments) {
  const auto bound = Bind("range", arguments, {"start", "stop", "step"}, 1);
  if (!bound[1]) return Value::MakeObject(std::make_shared<Range>(0, RangeBound(*bound[0]), 1));
  return Value::MakeObject(std::make_shared<Range>(RangeBound(*bound[0]), RangeBound(*bound[1]),
                                                   bound[2] ? RangeBound(*bound[2]) : 1));
}

// The members of dict(...) and namespace(...): a mapping or pairs, then keywords.
Dict Members(Interpreter& interpreter, const char* function, CallArguments& arguments) {
  if (arguments.positional.size() > 1) {
    RaiseRuntime(fmt::format("{} expected at most 1 argument, got {}", function,
                             arguments.positional.size()));
  }
  Dict members;
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (from.IsDict()) {
      members = from.dict();
    } else {
      const auto source = Iterate(from);
      for (Value pair; source->Next(&pair);) {
        List parts = ToList(pair);
        if (parts.size() != 2) {
          RaiseRuntime("dictionary update sequence element has a length other than 2");
        }
        interpreter.Charge(parts[0].weight());
        members.Set(std::move(parts[0]), std::move(parts[1]));
      }
    }
  }
  for (auto& [name, value] : arguments.keyword) {
    members.Set(Value::Str(name, Origin::kTemplate), std::move(value));
  }
  return members;
}

Value MakeDictionary(Interpreter& interpreter, CallArguments& arguments) {
  return Value::MakeDict(Members(interpreter, "dict", arguments));
}

Value MakeNamespace(Interpreter& interpreter, CallArguments& arguments) {
  const Dict members = Members(interpreter, "namespace", arguments);
  auto space = interpreter.NewNamespace();
  for (const Dict::Entry& entry : members.entries()) {
    space->Set(Str(entry.key).text(), entry.value);
  }
  return Value::MakeObject(std::move(space));
}

// cycler(a, b, ...): .next() gives the items in turn.
class Cycler : public Object {
 public:
  explicit Cycler(List items) : items_(Value::MakeTuple(std::move(items))) {}
  std::string type_name() const override { return "Cycler"; }
  uint16_t depth() const override { return static_cast<uint16_t>(items_.depth() + 1); }

  std::optional<Value> Attribute(Interpreter&, std::string_view name) override {
    if (name == "current") return items_.items()[position_];
    if (name == "pos") return Value::Int(static_cast<int64_t>(position_));
    if (name == "items") return items_;
    if (name != "next" && name != "reset") return std::nullopt;
    return MakeFunction("next", [this, keep = self_.lock(), next = name == "next"](
                                    Interpreter&, CallArguments& arguments) {
      Bind("next", arguments, {});
      if (!next) {
        position_ = 0;
        return Value();
      }
      const Value current = items_.items()[position_];
      position_ = (position_ + 1) % items_.items().size();
      return current;
    });
  }

  static Value Make(List items) {
    auto cycler = std::make_shared<Cycler>(std::move(items));
    cycler->self_ = cycler;
    return Value::MakeObject(std::move(cycler));
  }

 private:
  Value items_;
  size_t position_ = 0;
  std::weak_ptr<Cycler> self_;  // methods keep their object alive
};

Value MakeCycler(Interpreter& /*interpreter*/, CallArguments& arguments) {
  if (arguments.positional.empty()) RaiseRuntime("at least one item has to be provided");
  return Cycler::Make(std::move(arguments.positional));
}

// joiner(separator): nothing at the first call, the separator afterwards.
Value MakeJoiner(Interpreter& /*interpreter*/, CallArguments& arguments) {
  const auto bound = Bind("joiner", arguments, {"sep"});
  const Value separator = bound[0].value_or(Value::Str(", ", Origin::kTemplate));
  const auto depth = static_cast<uint16_t>(separator.depth() + 1);
  return Value::MakeObject(std::make_shared<Function>(
      "joiner",
      [separator, used = std::make_shared<bool>(false)](Interpreter&, CallArguments& call) {
        Bind("joiner", call, {});
        if (std::exchange(*used, true)) return separator;
        return Value::Str("", Origin::kTemplate);
      },
      depth));
}

Value Lipsum(Interpreter& /*interpreter*/, CallArguments& /*arguments*/) {
  RaiseRuntime("lipsum() has no place in a chat template");
}

Value RaiseException(Interpreter& /*interpreter*/, CallArguments& arguments) {
  const auto bound = Bind("raise_exception", arguments, {"message"}, 1);
  throw TemplateError(TemplateErrorKind::kRaise, Str(*bound[0]).text());
}

Value StrftimeNow(Interpreter& interpreter, CallArguments& arguments) {
  const auto bound = Bind("strftime_now", arguments, {"format"}, 1);
  if (!bound[0]->IsString()) RaiseRuntime("strftime() argument 1 must be str");
  constexpr size_t kMaxFormat = 1000;
  const std::string& wanted = bound[0]->text();
  if (wanted.size() > kMaxFormat) RaiseRuntime("a time format is too long");
  // A time without a zone has no text for %z and %Z, and no microseconds.
  std::string format;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] != '%' || i + 1 >= wanted.size()) {
      format.push_back(wanted[i]);
      continue;
    }
    const char directive = wanted[++i];
    if (directive == 'f') {
      format += "000000";
    } else if (directive != 'z' && directive != 'Z') {
      format += {'%', directive};
    }
  }
  // A character in front tells an empty result from one that did not fit.
  format.insert(format.begin(), ' ');
  std::string text(64 * (kMaxFormat + 1), '\0');
  const size_t size = std::strftime(text.data(), text.size(), format.c_str(), &interpreter.now());
  if (size == 0) RaiseRuntime("a time format gives too long a text");
  return Value::Str(text.substr(1, size - 1), Origin::kTemplate);
}

}  // namespace

std::optional<Value> FindGlobal(std::string_view name) {
  struct Global {
    const char* name;
    Value (*body)(Interpreter&, CallArguments&);
  };
  static constexpr Global kGlobals[] = {
      {"range", MakeRange},
      {"dict", MakeDictionary},
      {"namespace", MakeNamespace},
      {"cycler", MakeCycler},
      {"joiner", MakeJoiner},
      {"lipsum", Lipsum},
      {"raise_exception", RaiseException},
      {"strftime_now", StrftimeNow},
  };
  for (const Global& global : kGlobals) {
    if (name == global.name) return MakeFunction(global.name, global.body);
  }
  return std::nullopt;
}

}  // namespace mference::jinja
