#include "text/tokenizer/json_cursor.h"

#include <algorithm>
#include <cstring>

#include "base/utf8.h"

namespace mference {

JsonCursor::JsonCursor(ReadAt read, uint64_t size, std::string name, uint64_t offset)
    : read_(std::move(read)),
      size_(size),
      name_(std::move(name)),
      window_(static_cast<size_t>(std::min<uint64_t>(kWindowBytes, size))),
      base_(offset) {}

// Moves window_[keep_from, end_) to the front and reads on behind it. False at the end of input or
// when the kept part already fills the window.
bool JsonCursor::Refill(size_t keep_from) {
  const size_t kept = end_ - keep_from;
  if (kept > 0) std::memmove(window_.data(), window_.data() + keep_from, kept);
  base_ += keep_from;
  position_ -= keep_from;
  end_ = kept;
  const uint64_t left = size_ - (base_ + end_);
  const size_t count = static_cast<size_t>(std::min<uint64_t>(window_.size() - end_, left));
  if (count == 0) return false;
  read_(base_ + end_, std::as_writable_bytes(std::span(window_)).subspan(end_, count));
  end_ += count;
  return true;
}

void JsonCursor::SkipSpace() {
  for (;;) {
    while (position_ < end_) {
      const char c = window_[position_];
      if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return;
      ++position_;
    }
    if (!Refill(position_)) return;
  }
}

char JsonCursor::Peek() {
  SkipSpace();
  return position_ < end_ ? window_[position_] : '\0';
}

std::string JsonCursor::Found() {
  const char c = Peek();
  if (position_ >= end_) return "the end of the file";
  if (c == '"') return "a string";
  if (c == '{') return "an object";
  if (c == '[') return "an array";
  if (c == '-' || (c >= '0' && c <= '9')) return "a number";
  if (c == 't' || c == 'f' || c == 'n') return "a literal";
  return fmt::format("byte 0x{:02X}", static_cast<uint8_t>(c));
}

void JsonCursor::Expect(char character, const char* what) {
  if (Peek() != character || position_ >= end_) FailHere("expected {}, found {}", what, Found());
  ++position_;
}

void JsonCursor::BeginObject() {
  Expect('{', "an object");
  first_ = true;
}

void JsonCursor::BeginArray() {
  Expect('[', "an array");
  first_ = true;
}

bool JsonCursor::NextMember(char close, const char* container) {
  const bool first = first_;
  first_ = false;
  const char c = Peek();
  if (c == close) {
    ++position_;
    return false;
  }
  if (first) return true;
  if (c != ',') FailHere("expected ',' or the end of {}, found {}", container, Found());
  ++position_;
  return true;
}

bool JsonCursor::NextKey(std::string* key) {
  if (!NextMember('}', "the object")) return false;
  if (Peek() != '"') FailHere("expected a member name, found {}", Found());
  key->assign(String());
  Expect(':', "':'");
  return true;
}

bool JsonCursor::NextElement() { return NextMember(']', "the array"); }

std::string_view JsonCursor::String() {
  Expect('"', "a string");
  size_t begin = position_;
  uint8_t any = 0;  // all bytes or-ed: tells whether there is anything but ASCII
  for (;;) {
    for (; position_ < end_; ++position_) {
      const auto c = static_cast<uint8_t>(window_[position_]);
      any |= c;
      if (c == '"') {
        const std::string_view text(window_.data() + begin, position_ - begin);
        if (text.size() > kMaxStringBytes) {
          FailHere("a string is longer than {} bytes", kMaxStringBytes);
        }
        ++position_;
        if (any >= 0x80 && !IsValidUtf8(text)) FailHere("the string before is not valid UTF-8");
        return text;
      }
      if (c == '\\') return EscapedString(begin, position_);
      if (c < 0x20) FailHere("control character 0x{:02X} in a string", c);
    }
    if (position_ - begin > kMaxStringBytes) {
      FailHere("a string is longer than {} bytes", kMaxStringBytes);
    }
    if (!Refill(begin)) FailHere("the file ends inside a string");
    begin = 0;
  }
}

char JsonCursor::ReadByte() {
  if (position_ >= end_ && !Refill(position_)) FailHere("the file ends inside a string");
  return window_[position_++];
}

std::string_view JsonCursor::EscapedString(size_t begin, size_t escape) {
  unescaped_.assign(window_.data() + begin, escape - begin);
  for (;;) {
    const char c = ReadByte();
    if (c == '"') break;
    if (c == '\\') {
      ReadEscape();
    } else if (static_cast<uint8_t>(c) < 0x20) {
      FailHere("control character 0x{:02X} in a string", static_cast<uint8_t>(c));
    } else {
      unescaped_.push_back(c);
    }
    if (unescaped_.size() > kMaxStringBytes) {
      FailHere("a string is longer than {} bytes", kMaxStringBytes);
    }
  }
  if (!IsValidUtf8(unescaped_)) FailHere("the string before is not valid UTF-8");
  return unescaped_;
}

uint32_t JsonCursor::ReadHex4() {
  uint32_t code = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = ReadByte();
    uint32_t digit = 0;
    if (c >= '0' && c <= '9') {
      digit = static_cast<uint32_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<uint32_t>(c - 'a') + 10;
    } else if (c >= 'A' && c <= 'F') {
      digit = static_cast<uint32_t>(c - 'A') + 10;
    } else {
      FailHere("expected four hexadecimal digits after \\u");
    }
    code = code << 4 | digit;
  }
  return code;
}

void JsonCursor::ReadEscape() {
  static constexpr std::string_view kFrom = "\"\\/bfnrt";
  static constexpr std::string_view kTo = "\"\\/\b\f\n\r\t";
  const char c = ReadByte();
  if (c != 'u') {
    const size_t at = kFrom.find(c);
    if (at == std::string_view::npos) FailHere("unknown escape in a string");
    unescaped_.push_back(kTo[at]);
    return;
  }
  uint32_t code = ReadHex4();
  if (code >= 0xD800 && code <= 0xDFFF) {
    if (code >= 0xDC00 || ReadByte() != '\\' || ReadByte() != 'u') {
      FailHere("a surrogate without its other half");
    }
    const uint32_t low = ReadHex4();
    if (low < 0xDC00 || low > 0xDFFF) FailHere("a surrogate without its other half");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  AppendUtf8(unescaped_, code);
}

int64_t JsonCursor::Int() {
  static constexpr int kMaxDigits = 15;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  bool negative = false;
  if (Peek() == '-') {
    negative = true;
    ++position_;
  }
  int64_t value = 0;
  int digits = 0;
  bool leading_zero = false;
  for (;; ++position_, ++digits) {
    if (position_ >= end_ && !Refill(position_)) break;
    const char c = window_[position_];
    if (c == '.' || c == 'e' || c == 'E') FailHere("expected a whole number");
    if (!is_digit(c)) break;
    if (leading_zero) FailHere("a number with a leading zero");
    if (digits == kMaxDigits) FailHere("expected a whole number of at most {} digits", kMaxDigits);
    leading_zero = digits == 0 && c == '0';
    value = value * 10 + (c - '0');
  }
  if (digits == 0) FailHere("expected a whole number, found {}", Found());
  return negative ? -value : value;
}

// Steps over one value, copying it to `out` unless that is null. Only strings and nesting are
// understood: what is copied is parsed properly by the caller, what is skipped has no meaning here.
void JsonCursor::Walk(size_t max_bytes, std::string* out) {
  size_t depth = 0;
  bool in_string = false;
  bool escaped = false;
  bool started = false;
  SkipSpace();
  for (;;) {
    if (position_ >= end_ && !Refill(position_)) {
      if (started && depth == 0 && !in_string) return;
      FailHere("the file ends inside a value");
    }
    const char c = window_[position_];
    bool last = false;
    if (in_string) {
      if (escaped) {
        escaped = false;
      } else if (c == '\\') {
        escaped = true;
      } else if (c == '"') {
        in_string = false;
        last = depth == 0;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return;  // closes the container around a bare literal
      last = --depth == 0;
    } else if (depth == 0 && (c == ',' || c == ' ' || c == '\n' || c == '\r' || c == '\t')) {
      return;
    }
    started = true;
    ++position_;
    if (out != nullptr) {
      if (out->size() == max_bytes) FailHere("a value is longer than {} bytes", max_bytes);
      out->push_back(c);
    }
    if (last) return;
  }
}

void JsonCursor::Capture(size_t max_bytes, std::string* out) {
  out->clear();
  Walk(max_bytes, out);
  first_ = false;
}

void JsonCursor::Skip() {
  Walk(0, nullptr);
  first_ = false;
}

void JsonCursor::ExpectEnd() {
  Peek();
  if (position_ < end_) FailHere("expected the end of the file, found {}", Found());
}

}  // namespace mference
