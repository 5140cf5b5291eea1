#include "text/template/sequence_filters.h"

#include <algorithm>

#include "text/template/builtins.h"
#include "text/template/interpreter.h"
#include "text/template/operators.h"
#include "text/template/python_text.h"

namespace mference::jinja::sequence_filters {
namespace {

using Arguments = CallArguments;

// The items of `input`, paid for.
List Listed(Interpreter& interpreter, const Value& input) {
  if (input.IsString()) interpreter.ChargeBytes(input.text().size() * sizeof(Value));
  List items = ToList(input);
  interpreter.Charge(items.size());
  interpreter.ChargeBytes(items.size() * sizeof(Value));
  return items;
}

Value MakeIterator(List items) {
  return Value::MakeObject(std::make_shared<Iterator>("generator", std::move(items)));
}

bool Flag(const std::optional<Value>& value) { return value && Truth(*value); }

int64_t Positive(const Value& value, const char* what) {
  const auto number = AsIndex(value);
  if (!number || *number <= 0) RaiseRuntime(fmt::format("{} must be a positive integer", what));
  return *number;
}

Value IgnoreCase(Interpreter& interpreter, const Value& value) {
  if (!value.IsString()) return value;
  Arguments none;
  return CallStringMethod(interpreter, value, "lower", none);
}

// Follows an attribute path such as "a.b.0".
class AttributeGetter {
 public:
  AttributeGetter(Interpreter& interpreter, const std::optional<Value>& path,
                  std::optional<Value> fallback = std::nullopt)
      : interpreter_(interpreter), fallback_(std::move(fallback)) {
    if (fallback_ && fallback_->IsNone()) fallback_.reset();
    if (!path || path->IsNone()) return;
    if (!path->IsString()) {
      parts_.push_back(*path);
      return;
    }
    const std::string& text = path->text();
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find('.', begin), text.size());
      const std::string part = text.substr(begin, end - begin);
      const auto number = BigInt::FromDecimal(part);
      const bool index = number && part[0] != '-' && part[0] != '+';
      parts_.push_back(index ? Value::Int(*number) : Value::Str(part, Origin::kTemplate));
      begin = end + 1;
    }
  }

  Value operator()(Value item) const {
    for (const Value& part : parts_) {
      item = interpreter_.GetItem(item, part);
      if (fallback_ && item.IsUndefined()) item = *fallback_;
    }
    return item;
  }

 private:
  Interpreter& interpreter_;
  std::vector<Value> parts_;
  std::optional<Value> fallback_;
};

struct Keyed {
  Value key;
  Value item;
};

// Stable, as Python's sorted().
void SortByKey(Interpreter& interpreter, std::vector<Keyed>& items, bool reverse) {
  // Every key takes part in about log2(n) comparisons.
  constexpr uint64_t kComparisons = 16;
  for (const Keyed& entry : items) {
    const uint64_t weight = entry.key.weight();
    interpreter.Charge(weight > UINT64_MAX / kComparisons ? weight : weight * kComparisons);
  }
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? Compare(b.key, a.key, Order::kLess) : Compare(a.key, b.key, Order::kLess);
  });
}

Value Extreme(Interpreter& interpreter, const Value& input, Arguments& arguments, Order better) {
  const auto bound = Bind("max", arguments, {"case_sensitive", "attribute"});
  const AttributeGetter attribute(interpreter, bound[1]);
  std::optional<Keyed> best;
  for (const Value& item : Listed(interpreter, input)) {
    Value key = attribute(item);
    if (!Flag(bound[0])) key = IgnoreCase(interpreter, key);
    interpreter.Charge(key.weight());
    if (!best || Compare(key, best->key, better)) best = Keyed{key, item};
  }
  return best ? best->item : Value::MakeUndefined("No aggregated item, sequence was empty.", "");
}

// The items of `input` that pass the test named by the arguments (the truth of the item by
// default), or fail it, applied to the item or to an attribute of it.
Value Filtered(Interpreter& interpreter, const Value& input, Arguments& arguments, bool wanted,
               bool by_attribute) {
  List& positional = arguments.positional;
  std::optional<Value> path;
  if (by_attribute) {
    if (positional.empty()) RaiseRuntime("Missing parameter for attribute name");
    path = positional.front();
    positional.erase(positional.begin());
  }
  const AttributeGetter attribute(interpreter, path);
  std::optional<std::string> test;
  if (!positional.empty()) {
    if (!positional.front().IsString()) RaiseRuntime("a test's name must be a string");
    test = positional.front().text();
    positional.erase(positional.begin());
  }
  List kept;
  if (!Truth(input)) return MakeIterator({});
  for (const Value& item : Listed(interpreter, input)) {
    const Value subject = attribute(item);
    const bool holds = test ? interpreter.ApplyTest(*test, subject, arguments) : Truth(subject);
    if (holds == wanted) kept.push_back(item);
  }
  return MakeIterator(std::move(kept));
}

// What groupby gives: a tuple whose members also have names.
class Group : public Object {
 public:
  Group(Value grouper, Value list)
      : pair_(Value::MakeTuple({std::move(grouper), std::move(list)})) {}
  std::string type_name() const override { return "_GroupTuple"; }
  std::string Repr() const override { return jinja::Repr(pair_); }
  std::optional<Value> Attribute(Interpreter&, std::string_view name) override {
    if (name == "grouper") return pair_.items()[0];
    if (name == "list") return pair_.items()[1];
    return std::nullopt;
  }
  std::optional<Value> Item(Interpreter&, const Value& key) override {
    const auto index = AsIndex(key);
    return index ? At(pair_, *index) : std::nullopt;
  }
  std::unique_ptr<ItemSource> Iterate(const std::shared_ptr<Object>&) override {
    return jinja::Iterate(pair_);
  }
  std::optional<int64_t> Length() const override { return 2; }
  bool subscriptable() const override { return true; }
  uint16_t depth() const override { return static_cast<uint16_t>(pair_.depth() + 1); }
  uint64_t weight() const override { return pair_.weight(); }

 private:
  Value pair_;
};

}  // namespace

Value LengthOf(Interpreter&, const Value& input, Arguments& arguments) {
  Bind("length", arguments, {});
  const auto length = Length(input);
  if (!length) RaiseRuntime(fmt::format("object of type '{}' has no len()", TypeName(input)));
  return Value::Int(*length);
}

Value MakeList(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  Bind("list", arguments, {});
  return Value::MakeList(Listed(interpreter, input));
}

Value First(Interpreter&, const Value& input, Arguments& arguments) {
  Bind("first", arguments, {});
  Value item;
  if (Iterate(input)->Next(&item)) return item;
  return Value::MakeUndefined("No first item, sequence was empty.", "");
}

Value Last(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  Bind("last", arguments, {});
  if (input.IsList() || input.IsTuple() || input.IsString()) {
    if (auto item = At(input, -1)) return *item;
    return Value::MakeUndefined("No last item, sequence was empty.", "");
  }
  interpreter.Charge(input.weight());
  const auto reversed = ReverseItems(input);
  if (!reversed) RaiseRuntime(fmt::format("'{}' object is not reversible", TypeName(input)));
  if (!reversed->empty()) return reversed->front();
  return Value::MakeUndefined("No last item, sequence was empty.", "");
}

Value Reverse(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  Bind("reverse", arguments, {});
  if (input.IsString()) return Slice(input, Value(), Value(), Value::Int(-1));
  List items = Listed(interpreter, input);
  std::reverse(items.begin(), items.end());
  const bool iterator = input.IsObject() && dynamic_cast<Iterator*>(&input.object()) != nullptr;
  if (iterator) return Value::MakeList(std::move(items));
  return Value::MakeObject(std::make_shared<Iterator>("list_reverseiterator", std::move(items)));
}

Value Items(Interpreter&, const Value& input, Arguments& arguments) {
  Bind("items", arguments, {});
  if (input.IsUndefined()) return MakeIterator({});
  if (!input.IsDict()) RaiseRuntime("Can only get item pairs from a mapping.");
  List pairs;
  for (const auto& [key, value] : input.dict().entries()) {
    pairs.push_back(Value::MakeTuple({key, value}));
  }
  return MakeIterator(std::move(pairs));
}

Value Join(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto bound = Bind("join", arguments, {"d", "attribute"});
  const AttributeGetter attribute(interpreter, bound[1]);
  const TracedString delimiter = bound[0] ? Str(*bound[0]) : TracedString();
  TracedString out;
  bool first = true;
  const auto source = Iterate(input);
  for (Value item; source->Next(&item); first = false) {
    const size_t before = out.size();
    if (!first) out.Append(delimiter);
    const Value part = attribute(item);
    interpreter.Charge(part.weight());
    out.Append(Str(part));
    interpreter.ChargeBytes(out.size() - before);
  }
  return Value::Str(std::move(out));
}

Value DictSort(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto bound = Bind("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = bound[1] && bound[1]->IsString() ? bound[1]->text() : "key";
  if (by != "key" && by != "value")
    RaiseRuntime("You can only sort by either \"key\" or \"value\"");
  if (input.IsUndefined()) RaiseUndefined(input);
  if (!input.IsDict()) {
    RaiseRuntime(fmt::format("'{}' object has no attribute 'items'", TypeName(input)));
  }
  std::vector<Keyed> entries;
  for (const auto& [key, value] : input.dict().entries()) {
    const Value& subject = by == "key" ? key : value;
    entries.push_back({Flag(bound[0]) ? subject : IgnoreCase(interpreter, subject),
                       Value::MakeTuple({key, value})});
  }
  SortByKey(interpreter, entries, Flag(bound[2]));
  List pairs;
  for (Keyed& entry : entries) pairs.push_back(std::move(entry.item));
  return Value::MakeList(std::move(pairs));
}

Value Sort(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto bound = Bind("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<AttributeGetter> attributes;
  if (bound[2] && bound[2]->IsString()) {
    Arguments comma;
    comma.positional.push_back(Value::Str(",", Origin::kTemplate));
    const Value paths = CallStringMethod(interpreter, *bound[2], "split", comma);
    for (const Value& path : paths.items()) attributes.emplace_back(interpreter, path);
  } else {
    attributes.emplace_back(interpreter, bound[2]);
  }
  std::vector<Keyed> entries;
  for (const Value& item : Listed(interpreter, input)) {
    List keys;
    for (const AttributeGetter& attribute : attributes) {
      const Value key = attribute(item);
      keys.push_back(Flag(bound[1]) ? key : IgnoreCase(interpreter, key));
    }
    entries.push_back({Value::MakeList(std::move(keys)), item});
  }
  SortByKey(interpreter, entries, Flag(bound[0]));
  List sorted;
  for (Keyed& entry : entries) sorted.push_back(std::move(entry.item));
  return Value::MakeList(std::move(sorted));
}

Value Unique(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto bound = Bind("unique", arguments, {"case_sensitive", "attribute"});
  const AttributeGetter attribute(interpreter, bound[1]);
  Dict seen;
  List unique;
  for (const Value& item : Listed(interpreter, input)) {
    Value key = attribute(item);
    if (!Flag(bound[0])) key = IgnoreCase(interpreter, key);
    interpreter.Charge(key.weight());
    if (seen.Find(key) != nullptr) continue;
    seen.Set(std::move(key), Value());
    unique.push_back(item);
  }
  return MakeIterator(std::move(unique));
}

Value Min(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  return Extreme(interpreter, input, arguments, Order::kLess);
}

Value Max(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  return Extreme(interpreter, input, arguments, Order::kGreater);
}

Value Sum(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto bound = Bind("sum", arguments, {"attribute", "start"});
  const AttributeGetter attribute(interpreter, bound[0]);
  Value total = bound[1].value_or(Value::Int(0));
  if (total.IsString()) RaiseRuntime("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : Listed(interpreter, input)) {
    total = interpreter.Charged(Binary(BinaryOperator::kAdd, total, attribute(item)));
  }
  return total;
}

Value Map(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  if (!Truth(input)) return MakeIterator({});
  List mapped;
  if (arguments.positional.empty() && !arguments.keyword.empty()) {
    const auto bound = Bind("map", arguments, {"attribute", "default"}, 1);
    const AttributeGetter attribute(interpreter, bound[0], bound[1]);
    for (const Value& item : Listed(interpreter, input)) mapped.push_back(attribute(item));
    return MakeIterator(std::move(mapped));
  }
  if (arguments.positional.empty() || !arguments.positional[0].IsString()) {
    RaiseRuntime("map requires a filter argument");
  }
  const std::string filter = arguments.positional[0].text();
  arguments.positional.erase(arguments.positional.begin());
  for (const Value& item : Listed(interpreter, input)) {
    mapped.push_back(interpreter.ApplyFilter(filter, item, arguments));
  }
  return MakeIterator(std::move(mapped));
}

Value Select(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  return Filtered(interpreter, input, arguments, true, false);
}

Value Reject(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  return Filtered(interpreter, input, arguments, false, false);
}

Value SelectAttribute(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  return Filtered(interpreter, input, arguments, true, true);
}

Value RejectAttribute(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  return Filtered(interpreter, input, arguments, false, true);
}

Value Batch(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto bound = Bind("batch", arguments, {"linecount", "fill_with"}, 1);
  const auto width = static_cast<size_t>(Positive(*bound[0], "batch: linecount"));
  List batches;
  List batch;
  for (const Value& item : Listed(interpreter, input)) {
    if (batch.size() == width) batches.push_back(Value::MakeList(std::exchange(batch, {})));
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (bound[1] && !bound[1]->IsNone() && batch.size() < width) {
      interpreter.ChargeBytes((width - batch.size()) * sizeof(Value));
      batch.resize(width, *bound[1]);
    }
    batches.push_back(Value::MakeList(std::move(batch)));
  }
  return MakeIterator(std::move(batches));
}

Value Slices(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto bound = Bind("slice", arguments, {"slices", "fill_with"}, 1);
  const auto count = static_cast<size_t>(Positive(*bound[0], "slice: slices"));
  const List items = Listed(interpreter, input);
  interpreter.Charge(count);
  interpreter.ChargeBytes(count * sizeof(Value));
  const size_t width = items.size() / count;
  const size_t longer = items.size() % count;  // the first slices have one item more
  List slices;
  auto begin = items.begin();
  for (size_t i = 0; i < count; ++i) {
    const auto end = begin + static_cast<ptrdiff_t>(width + (i < longer ? 1 : 0));
    List slice(begin, end);
    begin = end;
    if (bound[1] && !bound[1]->IsNone() && i >= longer) slice.push_back(*bound[1]);
    slices.push_back(Value::MakeList(std::move(slice)));
  }
  return MakeIterator(std::move(slices));
}

Value GroupBy(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto bound = Bind("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const AttributeGetter attribute(interpreter, bound[0], bound[1]);
  std::vector<Keyed> entries;
  for (const Value& item : Listed(interpreter, input)) {
    const Value key = attribute(item);
    entries.push_back({Flag(bound[2]) ? key : IgnoreCase(interpreter, key), item});
  }
  SortByKey(interpreter, entries, false);
  List groups;
  for (size_t i = 0; i < entries.size();) {
    List members;
    size_t end = i;
    for (; end < entries.size() && Equal(entries[end].key, entries[i].key); ++end) {
      members.push_back(entries[end].item);
    }
    // The name as the first member spells it.
    Value grouper = attribute(members[0]);
    groups.push_back(Value::MakeObject(
        std::make_shared<Group>(std::move(grouper), Value::MakeList(std::move(members)))));
    i = end;
  }
  return Value::MakeList(std::move(groups));
}

}  // namespace mference::jinja::sequence_filters
