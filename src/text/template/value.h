// Values of the template language: Python's, as far as a template can see them.
//
// Containers are immutable and shared (the sandbox forbids mutation), so copying a value is cheap.
// Integers are exact at any size; dictionaries keep insertion order. Not safe for concurrent use of
// one value's copies across threads while a render is running on either (reference counts are
// atomic, namespaces are not); a context that nobody mutates may be shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "text/template/big_int.h"
#include "text/template/traced_string.h"

namespace mference::jinja {

class Dict;
class Object;
class Value;

using List = std::vector<Value>;

// Containers nest at most this deep; deeper ones are refused when they are built. Keeps every
// recursive walk, destructors included, within a small stack.
inline constexpr uint16_t kMaxContainerDepth = 200;

// An undefined name or attribute. It prints as nothing and is false; using it for more is an error
// with `message`.
struct Undefined {
  std::string message;
  std::string name;        // what was looked up
  bool forbidden = false;  // an attribute that the sandbox hides: any use is a security error
};

// A float. `literal`, if set, is how the number was written in JSON that must pass through
// unchanged.
struct Float {
  double number = 0;
  std::shared_ptr<const std::string> literal;
};

struct String {
  TracedString traced;
  bool markup = false;  // the result of `safe` or `escape`: joins escape what is added to it
};

struct Sequence {
  List items;
  uint64_t weight = 1;
  uint16_t depth = 1;
};

class Value {
 public:
  enum class Kind : uint8_t {
    kUndefined,
    kNone,
    kBool,
    kInt,  // int64_t or, beyond it, BigInt
    kFloat,
    kString,
    kList,
    kTuple,
    kDict,
    kObject,  // functions, macros, namespaces, loops, ranges, iterators
  };

  Value();  // None
  static Value MakeUndefined(std::string message, std::string name);
  static Value MakeForbidden(std::string message, std::string name);
  static Value None() { return Value(); }
  static Value Bool(bool value);
  static Value Int(int64_t value);
  static Value Int(BigInt value);  // becomes an int64_t where it fits
  static Value Number(double value);
  static Value Number(Float value);
  static Value Str(std::string text, Origin origin);
  static Value Str(TracedString traced, bool markup = false);
  static Value MakeList(List items);  // throws TemplateError when nested too deep
  static Value MakeTuple(List items);
  static Value MakeDict(Dict dict);
  static Value MakeObject(std::shared_ptr<Object> object);

  Kind kind() const { return kind_; }
  bool IsUndefined() const { return kind_ == Kind::kUndefined; }
  bool IsNone() const { return kind_ == Kind::kNone; }
  bool IsBool() const { return kind_ == Kind::kBool; }
  bool IsInt() const { return kind_ == Kind::kInt; }
  bool IsFloat() const { return kind_ == Kind::kFloat; }
  bool IsString() const { return kind_ == Kind::kString; }
  bool IsList() const { return kind_ == Kind::kList; }
  bool IsTuple() const { return kind_ == Kind::kTuple; }
  bool IsDict() const { return kind_ == Kind::kDict; }
  bool IsObject() const { return kind_ == Kind::kObject; }
  bool IsSmallInt() const { return std::holds_alternative<int64_t>(payload_); }

  // Each requires the kind it names.
  const Undefined& undefined() const { return *Payload<Undefined>(); }
  bool boolean() const { return std::get<bool>(payload_); }
  int64_t small_int() const { return std::get<int64_t>(payload_); }
  BigInt big_int() const;  // of any kInt
  const Float& number() const { return std::get<Float>(payload_); }
  const String& string() const { return *Payload<String>(); }
  const std::string& text() const { return string().traced.text(); }
  const List& items() const { return Payload<Sequence>()->items; }  // list or tuple
  const Dict& dict() const { return *Payload<Dict>(); }
  Object& object() const { return *std::get<std::shared_ptr<Object>>(payload_); }
  const std::shared_ptr<Object>& object_pointer() const {
    return std::get<std::shared_ptr<Object>>(payload_);
  }

  // Whether a scalar came from the conversation (strings know it per byte).
  bool from_data() const { return from_data_; }
  Value& MarkData() {
    from_data_ = true;
    return *this;
  }

  // Levels of containers below and including this one; 0 for scalars.
  uint16_t depth() const;
  // What a walk over all of it costs, in steps; shared parts count every time they are reached, so
  // a few lines of template can make it astronomic (it saturates).
  uint64_t weight() const;
  // Address of the shared payload, for identity comparisons; null for scalars.
  const void* identity() const;

 private:
  template <typename T>
  const std::shared_ptr<const T>& Payload() const {
    return std::get<std::shared_ptr<const T>>(payload_);
  }

  Kind kind_ = Kind::kNone;
  bool from_data_ = false;
  std::variant<std::monostate, bool, int64_t, Float, std::shared_ptr<const BigInt>,
               std::shared_ptr<const Undefined>, std::shared_ptr<const String>,
               std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>,
               std::shared_ptr<Object>>
      payload_;
};

// An insertion-ordered mapping with Python's key equality (1, 1.0 and true are one key).
class Dict {
 public:
  struct Entry {
    Value key;
    Value value;
  };

  // Replaces the value of an equal key in place, or appends. The key must be hashable (a scalar or
  // a tuple of such); throws TemplateError otherwise.
  void Set(Value key, Value value);
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;

  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  uint16_t depth() const { return depth_; }
  uint64_t weight() const { return weight_; }

 private:
  // Beyond a few keys a hash index replaces the linear scan.
  void Index(size_t entry);
  size_t Locate(const Value& key) const;  // entries_.size() when absent

  std::vector<Entry> entries_;
  std::vector<std::pair<uint64_t, uint32_t>>
      index_;  // (hash, entry), a hash table by open addressing
  uint64_t weight_ = 1;
  uint16_t depth_ = 1;
};

// How decimals of a JSON text are kept.
enum class NumberStyle {
  kPython,     // as doubles, printed like Python's repr: 1.50 becomes 1.5
  kAsWritten,  // printed with the digits that were written
};

// JSON text to a value: key order kept, integers exact at any size, the last duplicate wins, NaN
// and Infinity refused. All strings and scalars get `origin`. Throws Error(code, "NAME: ...at byte
// N").
Value ParseJsonValue(std::string_view text, const std::string& name, ErrorCode code,
                     NumberStyle numbers, Origin origin, size_t max_depth = 64);

// The same from a parsed document (whose integers beyond 64 bits have already become doubles).
Value FromJson(const OrderedJson& json, Origin origin);

}  // namespace mference::jinja
