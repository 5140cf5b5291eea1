#include "format/json_pull.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <utility>

#include "base/utf8.h"

namespace mference {
namespace {

constexpr size_t kWindowBytes = 64 * 1024;
constexpr size_t kMaxKeyBytes = 4096;
constexpr size_t kMaxNumberBytes = 64;

// Stands for itself inside a string.
bool IsPlain(char c) { return static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\'; }

bool IsDigit(int c) { return c >= '0' && c <= '9'; }

}  // namespace

JsonPull::JsonPull(std::string_view text, std::string name, ErrorCode code)
    : window_(text), name_(std::move(name)), code_(code) {}

JsonPull::JsonPull(const FileDescriptor& file, uint64_t file_bytes, std::string name,
                   ErrorCode code)
    : file_(&file),
      file_bytes_(file_bytes),
      window_storage_(kWindowBytes, '\0'),
      name_(std::move(name)),
      code_(code) {}

void JsonPull::FailHere(std::string_view problem) const {
  Fail(code_, "{}: {}: {} at byte {}", name_, path_, problem, consumed_before_window_ + at_);
}

bool JsonPull::Refill() {
  if (file_ == nullptr) return false;
  consumed_before_window_ += window_.size();
  at_ = 0;
  const uint64_t left = file_bytes_ - consumed_before_window_;
  const auto size = static_cast<size_t>(std::min<uint64_t>(left, kWindowBytes));
  ReadExactly(*file_, consumed_before_window_,
              std::as_writable_bytes(std::span(window_storage_)).first(size), name_);
  window_ = std::string_view(window_storage_).substr(0, size);
  return size > 0;
}

int JsonPull::PeekChar() {
  if (at_ == window_.size() && !Refill()) return -1;
  return static_cast<unsigned char>(window_[at_]);
}

char JsonPull::NextChar() {
  const int c = PeekChar();
  if (c < 0) FailHere("the text ends early");
  ++at_;
  return static_cast<char>(c);
}

int JsonPull::PeekToken() {
  while (true) {
    const int c = PeekChar();
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return c;
    ++at_;
  }
}

void JsonPull::Expect(char c, const char* what) {
  if (PeekToken() != static_cast<unsigned char>(c)) FailHere(fmt::format("expected {}", what));
  ++at_;
}

void JsonPull::Enter(char open, const char* what) {
  Expect(open, what);
  if (++depth_ > kMaxDepth) FailHere(fmt::format("nested deeper than {} levels", kMaxDepth));
}

void JsonPull::Object(FunctionRef<void(std::string_view key)> on_member) {
  Enter('{', "an object");
  const size_t path_size = path_.size();
  bool first = true;
  while (PeekToken() != '}' || !first) {
    if (!first) {
      if (PeekToken() == '}') break;
      Expect(',', "',' or '}'");
    }
    first = false;
    if (PeekToken() != '"') FailHere("expected a member's name");
    scratch_.clear();
    ReadStringInto(scratch_, kMaxKeyBytes);
    Expect(':', "':'");
    path_ += '.';
    path_ += scratch_;
    on_member(scratch_);
    path_.resize(path_size);
  }
  ++at_;
  --depth_;
}

void JsonPull::Array(FunctionRef<void(size_t index)> on_element) {
  Enter('[', "an array");
  const size_t path_size = path_.size();
  size_t index = 0;
  while (PeekToken() != ']' || index > 0) {
    if (index > 0) {
      if (PeekToken() == ']') break;
      Expect(',', "',' or ']'");
    }
    fmt::format_to(std::back_inserter(path_), "[{}]", index);
    on_element(index);
    path_.resize(path_size);
    ++index;
  }
  ++at_;
  --depth_;
}

std::string JsonPull::String(size_t max_bytes) {
  if (PeekToken() != '"') FailHere("expected a string");
  std::string text;
  ReadStringInto(text, max_bytes);
  return text;
}

void JsonPull::ReadStringInto(std::string& out, size_t max_bytes) {
  ++at_;  // the quote that the caller saw
  while (true) {
    if (PeekChar() < 0) FailHere("the text ends inside a string");
    // Whatever needs no attention is taken at once.
    size_t end = at_;
    while (end < window_.size() && IsPlain(window_[end])) ++end;
    out += window_.substr(at_, end - at_);
    at_ = end;
    if (at_ < window_.size()) {
      const char c = NextChar();
      if (c == '"') break;
      if (c != '\\') FailHere("a control character inside a string");
      ReadEscape(out);
    }
    if (out.size() > max_bytes) {
      FailHere(fmt::format("a string of more than {} bytes", max_bytes));
    }
  }
  if (!IsValidUtf8(out)) FailHere("a string that is not UTF-8");
}

uint32_t JsonPull::ReadHex4() {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = NextChar();
    uint32_t digit = 0;
    if (const auto [end, error] = std::from_chars(&c, &c + 1, digit, 16);
        error != std::errc() || end != &c + 1) {
      FailHere("expected four hex digits after \\u");
    }
    value = value * 16 + digit;
  }
  return value;
}

void JsonPull::ReadEscape(std::string& out) {
  constexpr std::string_view kEscapes = "\"\\/bfnrt";
  constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  const char c = NextChar();
  if (c != 'u') {
    const size_t found = kEscapes.find(c);
    if (found == std::string_view::npos) FailHere("an unknown escape");
    out += kMeanings[found];
    return;
  }
  uint32_t scalar = ReadHex4();
  if (scalar >= 0xD800 && scalar < 0xDC00) {
    if (NextChar() != '\\' || NextChar() != 'u') FailHere("half of a surrogate pair");
    const uint32_t low = ReadHex4();
    if (low < 0xDC00 || low > 0xDFFF) FailHere("half of a surrogate pair");
    scalar = 0x10000 + ((scalar - 0xD800) << 10) + (low - 0xDC00);
  } else if (scalar >= 0xDC00 && scalar <= 0xDFFF) {
    FailHere("half of a surrogate pair");
  }
  AppendUtf8(out, scalar);
}

// The grammar of RFC 8259: no leading zeros, plus signs or bare points.
std::string_view JsonPull::ReadNumber() {
  scratch_.clear();
  const auto take_digits = [this] {
    if (!IsDigit(PeekChar())) FailHere("expected a digit");
    while (IsDigit(PeekChar())) {
      scratch_ += NextChar();
      if (scratch_.size() > kMaxNumberBytes) FailHere("a number with too many digits");
    }
  };
  if (PeekToken() == '-') scratch_ += NextChar();
  if (PeekChar() == '0') {
    scratch_ += NextChar();
  } else {
    take_digits();
  }
  if (PeekChar() == '.') {
    scratch_ += NextChar();
    take_digits();
  }
  if (PeekChar() == 'e' || PeekChar() == 'E') {
    scratch_ += NextChar();
    if (PeekChar() == '+' || PeekChar() == '-') scratch_ += NextChar();
    take_digits();
  }
  return scratch_;
}

uint64_t JsonPull::Uint() {
  if (!IsDigit(PeekToken())) FailHere("expected a non-negative integer");
  std::string_view text = ReadNumber();
  // 5.0 is how some writers spell 5.
  if (const size_t point = text.find('.'); point != std::string_view::npos) {
    if (text.find_first_not_of('0', point + 1) == std::string_view::npos) {
      text = text.substr(0, point);
    }
  }
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    FailHere(fmt::format("expected a 64-bit non-negative integer, found {}", text));
  }
  return value;
}

void JsonPull::ReadLiteral(std::string_view literal) {
  for (const char c : literal) {
    if (NextChar() != c) FailHere(fmt::format("expected {}", literal));
  }
}

bool JsonPull::IsNull() {
  if (PeekToken() != 'n') return false;
  ReadLiteral("null");
  return true;
}

void JsonPull::Skip() {
  switch (PeekToken()) {
    case '{':
      return Object([this](std::string_view) { Skip(); });
    case '[':
      return Array([this](size_t) { Skip(); });
    case '"':
      scratch_.clear();
      // A skipped string only has to fit the window of what is sane.
      return ReadStringInto(scratch_, size_t{1} << 20);
    case 't':
      return ReadLiteral("true");
    case 'f':
      return ReadLiteral("false");
    case 'n':
      return ReadLiteral("null");
    default:
      ReadNumber();
  }
}

void JsonPull::End() {
  if (PeekToken() != -1) FailHere("unexpected text after the document");
}

}  // namespace mference
