#include "text/template/object.h"

#include <algorithm>

#include "text/template/operators.h"
#include "text/template/python_text.h"
#include "text/template/template.h"
#include "text/template/unicode.h"

namespace mference::jinja {
namespace {

class EmptySource : public ItemSource {
 public:
  bool Next(Value* /*item*/) override { return false; }
};

class ListSource : public ItemSource {
 public:
  explicit ListSource(Value list) : list_(std::move(list)) {}
  bool Next(Value* item) override {
    if (next_ >= list_.items().size()) return false;
    *item = list_.items()[next_++];
    return true;
  }

 private:
  Value list_;
  size_t next_ = 0;
};

class CharacterSource : public ItemSource {
 public:
  explicit CharacterSource(Value string) : string_(std::move(string)) {}
  bool Next(Value* item) override {
    const TracedString& traced = string_.string().traced;
    if (position_ >= traced.size()) return false;
    const size_t end = position_ + CodePointBytes(traced.text(), position_);
    *item = Value::Str(traced.Slice(position_, end), string_.string().markup);
    position_ = end;
    return true;
  }

 private:
  Value string_;
  size_t position_ = 0;
};

class ViewSource : public ItemSource {
 public:
  explicit ViewSource(std::shared_ptr<DictView> view) : view_(std::move(view)) {}
  bool Next(Value* item) override {
    if (next_ >= view_->dict().dict().size()) return false;
    *item = view_->At(next_++);
    return true;
  }

 private:
  std::shared_ptr<DictView> view_;
  size_t next_ = 0;
};

class RangeSource : public ItemSource {
 public:
  explicit RangeSource(std::shared_ptr<Range> range) : range_(std::move(range)) {}
  bool Next(Value* item) override {
    if (next_ >= *range_->Length()) return false;
    *item = Value::Int(range_->At(next_++));
    return true;
  }

 private:
  std::shared_ptr<Range> range_;
  int64_t next_ = 0;
};

class IteratorSource : public ItemSource {
 public:
  explicit IteratorSource(std::shared_ptr<Iterator> iterator) : iterator_(std::move(iterator)) {}
  bool Next(Value* item) override { return iterator_->Next(item); }

 private:
  std::shared_ptr<Iterator> iterator_;
};

Value MakeView(const Value& dict, DictView::What what) {
  return Value::MakeObject(std::make_shared<DictView>(dict, what));
}

}  // namespace

Value Object::Call(Interpreter& /*interpreter*/, CallArguments /*arguments*/) {
  RaiseRuntime(fmt::format("'{}' object is not callable", type_name()));
}

Range::Range(int64_t start, int64_t stop, int64_t step) : start_(start), stop_(stop), step_(step) {
  // sandbox.MAX_RANGE
  constexpr uint64_t kMaxLength = 100'000;
  if (step == 0) RaiseRuntime("range() arg 3 must not be zero");
  const bool empty = step > 0 ? start >= stop : start <= stop;
  const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                     : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const uint64_t length = empty ? 0 : (distance - 1) / stride + 1;
  if (length > kMaxLength) {
    RaiseRuntime(fmt::format("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).",
                             kMaxLength));
  }
  length_ = static_cast<int64_t>(length);
}

std::string Range::Repr() const {
  if (step_ == 1) return fmt::format("range({}, {})", start_, stop_);
  return fmt::format("range({}, {}, {})", start_, stop_, step_);
}

std::optional<Value> Range::Attribute(Interpreter&, std::string_view name) {
  if (name == "start") return Value::Int(start_);
  if (name == "stop") return Value::Int(stop_);
  if (name == "step") return Value::Int(step_);
  return std::nullopt;
}

std::optional<Value> Range::Item(Interpreter&, const Value& key) {
  auto index = AsIndex(key);
  if (index && *index < 0) *index += length_;
  if (!index || *index < 0 || *index >= length_) return std::nullopt;
  return Value::Int(At(*index));
}

std::unique_ptr<ItemSource> Range::Iterate(const std::shared_ptr<Object>& self) {
  return std::make_unique<RangeSource>(std::static_pointer_cast<Range>(self));
}

bool Range::Equals(const Object& other) const {
  const auto* range = dynamic_cast<const Range*>(&other);
  return range != nullptr && length_ == range->length_ &&
         (length_ == 0 || (start_ == range->start_ && (length_ == 1 || step_ == range->step_)));
}

Iterator::Iterator(std::string type, List items) : type_(std::move(type)) {
  // Builds a list to have the nesting checked.
  depth_ = Value::MakeList(items).depth();
  items_ = std::move(items);
}

std::unique_ptr<ItemSource> Iterator::Iterate(const std::shared_ptr<Object>& self) {
  return std::make_unique<IteratorSource>(std::static_pointer_cast<Iterator>(self));
}

bool Iterator::Next(Value* item) {
  if (next_ >= items_.size()) return false;
  *item = items_[next_++];
  return true;
}

DictView::DictView(Value dict, What what) : dict_(std::move(dict)), what_(what) {}

std::string DictView::type_name() const {
  switch (what_) {
    case What::kKeys:
      return "dict_keys";
    case What::kValues:
      return "dict_values";
    case What::kItems:
      return "dict_items";
  }
  return "dict_view";
}

Value DictView::At(size_t entry) const {
  const Dict::Entry& pair = dict_.dict().entries()[entry];
  switch (what_) {
    case What::kKeys:
      return pair.key;
    case What::kValues:
      return pair.value;
    case What::kItems:
      return Value::MakeTuple({pair.key, pair.value});
  }
  return Value();
}

std::string DictView::Repr() const {
  List items;
  for (size_t i = 0; i < dict_.dict().size(); ++i) items.push_back(At(i));
  return fmt::format("{}({})", type_name(), jinja::Repr(Value::MakeList(std::move(items))));
}

std::unique_ptr<ItemSource> DictView::Iterate(const std::shared_ptr<Object>& self) {
  return std::make_unique<ViewSource>(std::static_pointer_cast<DictView>(self));
}

std::optional<int64_t> DictView::Length() const {
  return static_cast<int64_t>(dict_.dict().size());
}

std::string Namespace::Repr() const {
  // Namespaces may contain themselves; one inside another is not followed.
  std::string text;
  for (const Dict::Entry& entry : members_.entries()) {
    const bool nested = entry.value.IsObject() || entry.value.depth() > 1;
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", jinja::Repr(entry.key),
                        nested ? "..." : jinja::Repr(entry.value));
  }
  return fmt::format("<Namespace {{{}}}>", text);
}

std::optional<Value> Namespace::Attribute(Interpreter&, std::string_view name) {
  const Value* found = members_.Find(name);
  return found != nullptr ? std::optional<Value>(*found) : std::nullopt;
}

std::optional<Value> Namespace::Item(Interpreter&, const Value& key) {
  const Value* found = members_.Find(key);
  return found != nullptr ? std::optional<Value>(*found) : std::nullopt;
}

void Namespace::Set(std::string_view name, Value value) {
  members_.Set(Value::Str(std::string(name), Origin::kTemplate), std::move(value));
}

std::unique_ptr<ItemSource> TryIterate(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return std::make_unique<EmptySource>();
    case Value::Kind::kString:
      return std::make_unique<CharacterSource>(value);
    case Value::Kind::kList:
    case Value::Kind::kTuple:
      return std::make_unique<ListSource>(value);
    case Value::Kind::kDict: {
      const Value view = MakeView(value, DictView::What::kKeys);
      return view.object().Iterate(view.object_pointer());
    }
    case Value::Kind::kObject:
      return value.object().Iterate(value.object_pointer());
    default:
      return nullptr;
  }
}

std::unique_ptr<ItemSource> Iterate(const Value& value) {
  auto source = TryIterate(value);
  if (!source) RaiseRuntime(fmt::format("'{}' object is not iterable", TypeName(value)));
  return source;
}

List ToList(const Value& value) {
  const auto source = Iterate(value);
  List items;
  for (Value item; source->Next(&item);) items.push_back(item);
  return items;
}

std::optional<List> ReverseItems(const Value& value) {
  const bool view = value.IsObject() && dynamic_cast<DictView*>(&value.object()) != nullptr;
  const bool range = value.IsObject() && dynamic_cast<Range*>(&value.object()) != nullptr;
  if (!value.IsString() && !value.IsList() && !value.IsTuple() && !value.IsDict() && !view &&
      !range) {
    return std::nullopt;
  }
  List items = ToList(value);
  std::reverse(items.begin(), items.end());
  return items;
}

}  // namespace mference::jinja
