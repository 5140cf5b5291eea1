#include "text/template/value.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "text/template/object.h"
#include "text/template/operators.h"
#include "text/template/template.h"

namespace mference::jinja {
namespace {

uint16_t DepthAbove(uint16_t inner) {
  if (inner >= kMaxContainerDepth) {
    throw TemplateError(TemplateErrorKind::kLimit,
                        fmt::format("values nest deeper than {} levels", kMaxContainerDepth));
  }
  return static_cast<uint16_t>(inner + 1);
}

uint64_t SaturatingAdd(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

std::shared_ptr<const Sequence> MakeSequence(List items) {
  uint16_t inner = 0;
  uint64_t weight = 1;
  for (const Value& item : items) {
    inner = std::max(inner, item.depth());
    weight = SaturatingAdd(weight, item.weight());
  }
  auto sequence = std::make_shared<Sequence>();
  sequence->depth = DepthAbove(inner);
  sequence->weight = weight;
  sequence->items = std::move(items);
  return sequence;
}

}  // namespace

Value::Value() = default;

Value Value::MakeUndefined(std::string message, std::string name) {
  Value value;
  value.kind_ = Kind::kUndefined;
  value.payload_ =
      std::make_shared<const Undefined>(Undefined{std::move(message), std::move(name), false});
  return value;
}

Value Value::MakeForbidden(std::string message, std::string name) {
  Value value;
  value.kind_ = Kind::kUndefined;
  value.payload_ =
      std::make_shared<const Undefined>(Undefined{std::move(message), std::move(name), true});
  return value;
}

Value Value::Bool(bool boolean) {
  Value value;
  value.kind_ = Kind::kBool;
  value.payload_ = boolean;
  return value;
}

Value Value::Int(int64_t integer) {
  Value value;
  value.kind_ = Kind::kInt;
  value.payload_ = integer;
  return value;
}

Value Value::Int(BigInt integer) {
  if (const auto small = integer.ToInt64()) return Int(*small);
  Value value;
  value.kind_ = Kind::kInt;
  value.payload_ = std::make_shared<const BigInt>(std::move(integer));
  return value;
}

Value Value::Number(double number) { return Number(Float{number, nullptr}); }

Value Value::Number(Float number) {
  Value value;
  value.kind_ = Kind::kFloat;
  value.payload_ = std::move(number);
  return value;
}

Value Value::Str(std::string text, Origin origin) {
  return Str(TracedString(std::move(text), origin));
}

Value Value::Str(TracedString traced, bool markup) {
  Value value;
  value.kind_ = Kind::kString;
  value.payload_ = std::make_shared<const String>(String{std::move(traced), markup});
  return value;
}

Value Value::MakeList(List items) {
  Value value;
  value.kind_ = Kind::kList;
  value.payload_ = MakeSequence(std::move(items));
  return value;
}

Value Value::MakeTuple(List items) {
  Value value;
  value.kind_ = Kind::kTuple;
  value.payload_ = MakeSequence(std::move(items));
  return value;
}

Value Value::MakeDict(Dict dict) {
  Value value;
  value.kind_ = Kind::kDict;
  value.payload_ = std::make_shared<const Dict>(std::move(dict));
  return value;
}

Value Value::MakeObject(std::shared_ptr<Object> object) {
  Value value;
  value.kind_ = Kind::kObject;
  value.payload_ = std::move(object);
  return value;
}

BigInt Value::big_int() const {
  if (IsSmallInt()) return BigInt(small_int());
  return *Payload<BigInt>();
}

uint16_t Value::depth() const {
  switch (kind_) {
    case Kind::kList:
    case Kind::kTuple:
      return Payload<Sequence>()->depth;
    case Kind::kDict:
      return Payload<Dict>()->depth();
    case Kind::kObject:
      return object().depth();
    default:
      return 0;
  }
}

uint64_t Value::weight() const {
  constexpr uint64_t kBytesPerStep = 16;  // strings are walked many bytes at a time
  switch (kind_) {
    case Kind::kString:
      return 1 + text().size() / kBytesPerStep;
    case Kind::kList:
    case Kind::kTuple:
      return Payload<Sequence>()->weight;
    case Kind::kDict:
      return Payload<Dict>()->weight();
    case Kind::kObject:
      return object().weight();
    default:
      return 1;
  }
}

const void* Value::identity() const {
  switch (kind_) {
    case Kind::kUndefined:
      return Payload<Undefined>().get();
    case Kind::kString:
      return Payload<String>().get();
    case Kind::kList:
    case Kind::kTuple:
      return Payload<Sequence>().get();
    case Kind::kDict:
      return Payload<Dict>().get();
    case Kind::kObject:
      return object_pointer().get();
    default:
      return nullptr;
  }
}

namespace {

constexpr size_t kLinearEntries = 8;
constexpr uint32_t kEmptySlot = UINT32_MAX;

uint64_t HashKey(const Value& key) {
  switch (key.kind()) {
    case Value::Kind::kNone:
      return 0x9E3779B97F4A7C15ULL;
    case Value::Kind::kBool:
      return std::hash<int64_t>()(key.boolean() ? 1 : 0);
    case Value::Kind::kInt:
      if (key.IsSmallInt()) return std::hash<int64_t>()(key.small_int());
      return std::hash<double>()(key.big_int().ToDouble());
    case Value::Kind::kFloat: {
      // An integral float equals the integer, so it must hash like it.
      const double number = key.number().number;
      const auto integer = BigInt::FromDouble(number);
      if (!integer || integer->ToDouble() != number) return std::hash<double>()(number);
      return HashKey(Value::Int(*integer));
    }
    case Value::Kind::kString:
      return std::hash<std::string>()(key.text());
    case Value::Kind::kTuple: {
      uint64_t hash = key.items().size();
      for (const Value& item : key.items()) hash = hash * 1000003 ^ HashKey(item);
      return hash;
    }
    case Value::Kind::kUndefined:
      return 1;
    case Value::Kind::kObject:
      if (key.object().mapping()) break;
      return std::hash<const void*>()(key.identity());
    default:
      break;
  }
  throw TemplateError(TemplateErrorKind::kRuntime,
                      fmt::format("unhashable type: '{}'", TypeName(key)));
}

}  // namespace

void Dict::Set(Value key, Value value) {
  depth_ = std::max({depth_, DepthAbove(key.depth()), DepthAbove(value.depth())});
  weight_ = SaturatingAdd(weight_, SaturatingAdd(key.weight(), value.weight()));
  const size_t found = Locate(key);
  if (found < entries_.size()) {
    entries_[found].value = std::move(value);
    return;
  }
  entries_.push_back({std::move(key), std::move(value)});
  if (entries_.size() <= kLinearEntries) return;
  if (entries_.size() * 2 > index_.size()) {
    index_.assign(std::max<size_t>(64, entries_.size() * 4), {0, kEmptySlot});
    for (size_t i = 0; i < entries_.size(); ++i) Index(i);
  } else {
    Index(entries_.size() - 1);
  }
}

void Dict::Index(size_t entry) {
  const uint64_t hash = HashKey(entries_[entry].key);
  size_t slot = hash % index_.size();
  while (index_[slot].second != kEmptySlot) slot = (slot + 1) % index_.size();
  index_[slot] = {hash, static_cast<uint32_t>(entry)};
}

size_t Dict::Locate(const Value& key) const {
  const uint64_t hash = HashKey(key);  // also refuses keys that cannot be hashed
  if (index_.empty()) {
    size_t i = 0;
    while (i < entries_.size() && !Equal(entries_[i].key, key)) ++i;
    return i;
  }
  for (size_t slot = hash % index_.size(); index_[slot].second != kEmptySlot;
       slot = (slot + 1) % index_.size()) {
    if (index_[slot].first == hash && Equal(entries_[index_[slot].second].key, key)) {
      return index_[slot].second;
    }
  }
  return entries_.size();
}

const Value* Dict::Find(const Value& key) const {
  const size_t found = Locate(key);
  return found < entries_.size() ? &entries_[found].value : nullptr;
}

const Value* Dict::Find(std::string_view key) const {
  if (index_.empty()) {
    for (const Entry& entry : entries_) {
      if (entry.key.IsString() && entry.key.text() == key) return &entry.value;
    }
    return nullptr;
  }
  return Find(Value::Str(std::string(key), Origin::kTemplate));
}

}  // namespace mference::jinja
