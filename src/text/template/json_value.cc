// JSON text to values. A parser of its own because numbers must survive exactly: integers of any
// size, and decimals with the digits they were written with.
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/template/unicode.h"
#include "text/template/value.h"

namespace mference::jinja {
namespace {

class JsonValueParser {
 public:
  JsonValueParser(std::string_view text, const std::string& name, ErrorCode code,
                  NumberStyle numbers, Origin origin, size_t max_depth)
      : text_(text),
        name_(name),
        code_(code),
        numbers_(numbers),
        origin_(origin),
        max_depth_(std::min<size_t>(max_depth, kMaxContainerDepth - 1)) {}

  Value Parse() {
    const size_t bad = FindInvalidUtf8(text_);
    if (bad != std::string_view::npos) FailAt(bad, "not valid UTF-8");
    Value value = ParseValue(0);
    SkipSpace();
    if (position_ != text_.size()) FailHere("expected the end of the text");
    return value;
  }

 private:
  [[noreturn]] void FailAt(size_t position, std::string_view problem) const {
    Fail(code_, "{}: invalid JSON at byte {}: {}", name_, position, problem);
  }
  [[noreturn]] void FailHere(std::string_view problem) const { FailAt(position_, problem); }

  void SkipSpace() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\t' ||
                                        text_[position_] == '\n' || text_[position_] == '\r')) {
      ++position_;
    }
  }

  char Peek() const { return position_ < text_.size() ? text_[position_] : '\0'; }

  bool Consume(char c) {
    if (Peek() != c || position_ >= text_.size()) return false;
    ++position_;
    return true;
  }

  bool ConsumeWord(std::string_view word) {
    if (text_.substr(position_, word.size()) != word) return false;
    position_ += word.size();
    return true;
  }

  Value ParseValue(size_t depth) {
    SkipSpace();
    switch (Peek()) {
      case '{':
        return ParseObject(depth + 1);
      case '[':
        return ParseArray(depth + 1);
      case '"':
        return ParseString();
      default:
        break;
    }
    Value value;
    if (ConsumeWord("true")) {
      value = Value::Bool(true);
    } else if (ConsumeWord("false")) {
      value = Value::Bool(false);
    } else if (!ConsumeWord("null")) {
      value = ParseNumber();
    }
    if (origin_ == Origin::kData) value.MarkData();
    return value;
  }

  void CheckDepth(size_t depth) const {
    if (depth > max_depth_) FailHere(fmt::format("nested deeper than {} levels", max_depth_));
  }

  Value ParseObject(size_t depth) {
    CheckDepth(depth);
    ++position_;
    Dict dict;
    SkipSpace();
    if (!Consume('}')) {
      do {
        SkipSpace();
        if (Peek() != '"') FailHere("expected a member name");
        Value key = ParseString();
        SkipSpace();
        if (!Consume(':')) FailHere("expected ':'");
        Value value = ParseValue(depth);
        dict.Set(std::move(key), std::move(value));
        SkipSpace();
      } while (Consume(','));
      if (!Consume('}')) FailHere("expected ',' or '}'");
    }
    return Value::MakeDict(std::move(dict));
  }

  Value ParseArray(size_t depth) {
    CheckDepth(depth);
    ++position_;
    List items;
    SkipSpace();
    if (!Consume(']')) {
      do {
        items.push_back(ParseValue(depth));
        SkipSpace();
      } while (Consume(','));
      if (!Consume(']')) FailHere("expected ',' or ']'");
    }
    return Value::MakeList(std::move(items));
  }

  Value ParseString() {
    ++position_;
    std::string out;
    while (true) {
      if (position_ >= text_.size()) FailHere("a string is not closed");
      const char c = text_[position_];
      if (static_cast<unsigned char>(c) < 0x20) FailHere("a control character in a string");
      ++position_;
      if (c == '"') break;
      if (c == '\\') {
        ParseEscape(out);
      } else {
        out.push_back(c);
      }
    }
    return Value::Str(std::move(out), origin_);
  }

  void ParseEscape(std::string& out) {
    constexpr std::string_view kEscapes = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const size_t start = position_ - 1;
    const char c = Peek();
    if (position_ < text_.size()) ++position_;
    if (const size_t which = kEscapes.find(c); which != std::string_view::npos) {
      out.push_back(kMeanings[which]);
      return;
    }
    if (c != 'u') FailAt(start, "an unknown escape in a string");
    char32_t code = ParseHex4(start);
    if (code >= 0xDC00 && code < 0xE000) FailAt(start, "a lone surrogate");
    if (code >= 0xD800 && code < 0xDC00) {
      if (!ConsumeWord("\\u")) FailAt(start, "a lone surrogate");
      const char32_t low = ParseHex4(start);
      if (low < 0xDC00 || low >= 0xE000) FailAt(start, "a lone surrogate");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    AppendUtf8(out, code);
  }

  char32_t ParseHex4(size_t start) {
    uint32_t code = 0;
    const char* begin = text_.data() + position_;
    if (position_ + 4 > text_.size()) FailAt(start, "expected four hexadecimal digits");
    const auto result = std::from_chars(begin, begin + 4, code, 16);
    if (result.ec != std::errc() || result.ptr != begin + 4) {
      FailAt(start, "expected four hexadecimal digits");
    }
    position_ += 4;
    return code;
  }

  size_t SkipDigits() {
    const size_t start = position_;
    while (Peek() >= '0' && Peek() <= '9') ++position_;
    return position_ - start;
  }

  Value ParseNumber() {
    const size_t start = position_;
    Consume('-');
    const bool zero = Peek() == '0';
    const size_t digits = SkipDigits();
    if (digits == 0) FailAt(start, "expected a value");
    if (zero && digits > 1) FailAt(start, "a number with a leading zero");
    bool integral = true;
    if (Consume('.')) {
      integral = false;
      if (SkipDigits() == 0) FailHere("expected a digit");
    }
    if (Peek() == 'e' || Peek() == 'E') {
      integral = false;
      ++position_;
      if (!Consume('+')) Consume('-');
      if (SkipDigits() == 0) FailHere("expected a digit");
    }
    const std::string_view literal = text_.substr(start, position_ - start);
    if (integral) {
      // "-0" is the integer 0 in Python; its digits would be lost, which nobody has meant.
      auto integer = BigInt::FromDecimal(literal);
      if (!integer) FailAt(start, "an integer beyond what is supported");
      return Value::Int(std::move(*integer));
    }
    Float number;
    // strtod, because from_chars reports the values below the smallest double as errors.
    number.number = std::strtod(std::string(literal).c_str(), nullptr);
    if (numbers_ == NumberStyle::kAsWritten) {
      number.literal = std::make_shared<const std::string>(literal);
    } else if (!std::isfinite(number.number)) {
      FailAt(start, "a number beyond the range of a double");
    }
    return Value::Number(std::move(number));
  }

  std::string_view text_;
  const std::string& name_;
  ErrorCode code_;
  NumberStyle numbers_;
  Origin origin_;
  size_t max_depth_;
  size_t position_ = 0;
};

Value Convert(const OrderedJson& json, Origin origin, int depth) {
  Value value;
  switch (json.type()) {
    case OrderedJson::value_t::object: {
      Dict dict;
      for (const auto& [key, member] : json.items()) {
        dict.Set(Value::Str(key, origin), Convert(member, origin, depth + 1));
      }
      return Value::MakeDict(std::move(dict));
    }
    case OrderedJson::value_t::array: {
      List items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(Convert(item, origin, depth + 1));
      return Value::MakeList(std::move(items));
    }
    case OrderedJson::value_t::string:
      return Value::Str(json.get<std::string>(), origin);
    case OrderedJson::value_t::boolean:
      value = Value::Bool(json.get<bool>());
      break;
    case OrderedJson::value_t::number_integer:
      value = Value::Int(json.get<int64_t>());
      break;
    case OrderedJson::value_t::number_unsigned:
      value = Value::Int(*BigInt::FromDecimal(std::to_string(json.get<uint64_t>())));
      break;
    case OrderedJson::value_t::number_float:
      value = Value::Number(json.get<double>());
      break;
    default:
      break;
  }
  if (origin == Origin::kData) value.MarkData();
  return value;
}

}  // namespace

Value ParseJsonValue(std::string_view text, const std::string& name, ErrorCode code,
                     NumberStyle numbers, Origin origin, size_t max_depth) {
  return JsonValueParser(text, name, code, numbers, origin, max_depth).Parse();
}

Value FromJson(const OrderedJson& json, Origin origin) { return Convert(json, origin, 0); }

}  // namespace mference::jinja
