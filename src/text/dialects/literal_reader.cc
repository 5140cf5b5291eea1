#include "text/dialects/literal_reader.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/utf8.h"

namespace mference {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsBareKeyChar(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' ||
         c == '.' || c == '$';
}

// RFC 8259, section 6.
bool IsJsonNumber(std::string_view word) {
  size_t i = 0;
  const auto digits = [&] {
    const size_t first = i;
    while (i < word.size() && IsDigit(word[i])) ++i;
    return i > first;
  };
  if (i < word.size() && word[i] == '-') ++i;
  if (i < word.size() && word[i] == '0') {
    ++i;
  } else if (!digits()) {
    return false;
  }
  if (i < word.size() && word[i] == '.') {
    ++i;
    if (!digits()) return false;
  }
  if (i < word.size() && (word[i] == 'e' || word[i] == 'E')) {
    ++i;
    if (i < word.size() && (word[i] == '+' || word[i] == '-')) ++i;
    if (!digits()) return false;
  }
  return i == word.size();
}

// Whether some number type holds it; readers of JSON refuse the rest, or call it infinite.
bool IsFinite(const std::string& number) {
  return std::isfinite(std::strtod(number.c_str(), nullptr));
}

int HexDigit(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

void LiteralReader::Push(std::string_view text) {
  while (!text.empty() && !error_) {
    // Strings are most of the bytes: take what needs no decision at once.
    if (const size_t run = StringRun(text); run > 0) {
      AppendToString(text.substr(0, run));
      text.remove_prefix(run);
      offset_ += run;
      continue;
    }
    Step(text[0]);
    text.remove_prefix(1);
    ++offset_;
  }
}

std::optional<LiteralError> LiteralReader::Finish() {
  if (!error_ && state_ == State::kWord) EndWord();
  if (!error_ && state_ != State::kDone) {
    switch (state_) {
      case State::kString:
      case State::kEscape:
      case State::kUnicode:
      case State::kDelimited:
        FailAt(token_offset_, "a string is not closed");
        break;
      default:
        Fail(nest_.empty() ? "there is no value" : "a bracket or brace is not closed");
    }
  }
  if (!error_ && too_deep_at_) {
    error_ = LiteralError{.too_deep = true,
                          .offset = *too_deep_at_,
                          .note = "values are nested deeper than the limit"};
  }
  return error_;
}

// Bytes at the start of `text` that belong to the open string as they are.
size_t LiteralReader::StringRun(std::string_view text) const {
  if (state_ != State::kString && state_ != State::kDelimited) return 0;
  const auto special = [json = state_ == State::kString](char c) {
    if (!json) return c == kStringDelimiterByte;
    return c == '"' || c == '\\' || c == kStringDelimiterByte ||
           static_cast<unsigned char>(c) < 0x20;
  };
  return static_cast<size_t>(std::find_if(text.begin(), text.end(), special) - text.begin());
}

void LiteralReader::Step(char c) {
  switch (state_) {
    case State::kValue:
    case State::kValueOrEnd:
      if (!IsSpace(c)) StepValue(c);
      break;
    case State::kKey:
    case State::kKeyOrEnd:
      if (!IsSpace(c)) StepKey(c);
      break;
    case State::kColon:
      if (IsSpace(c)) break;
      if (c != ':') return Fail("expected ':' after a key");
      state_ = State::kValue;
      break;
    case State::kCommaOrEnd:
      if (!IsSpace(c)) StepCommaOrEnd(c);
      break;
    case State::kDone:
      if (!IsSpace(c)) Fail("text follows the value");
      break;
    case State::kWord:
      if (c == ',' || c == ']' || c == '}' || c == kStringDelimiterByte || IsSpace(c)) {
        EndWord();
        if (!error_) Step(c);
      } else {
        word_ += c;
      }
      break;
    case State::kBareKey:
      if (IsBareKeyChar(c)) {
        key_ += c;
      } else {
        BeginKeyedValue();
        if (!error_) Step(c);
      }
      break;
    case State::kString:
      if (c == '"') {
        EndString();
      } else if (c == '\\') {
        state_ = State::kEscape;
      } else {
        Fail("a control character stands in a string; JSON writes it as an escape");
      }
      break;
    case State::kEscape:
      StepEscape(c);
      break;
    case State::kUnicode:
      StepUnicode(c);
      break;
    case State::kDelimited:
      EndString();
      break;
  }
}

void LiteralReader::StepValue(char c) {
  token_offset_ = offset_;
  switch (c) {
    case '{':
    case '[':
      return Open(c);
    case '"':
      return BeginString(State::kString, /*key=*/false);
    case ']':
      if (state_ == State::kValueOrEnd) return Close(c);
      return Fail("expected a value");
    case '}':
    case ',':
    case ':':
      return Fail("expected a value");
    case kStringDelimiterByte:
      if (!syntax_.gemma) return Fail("a string delimiter stands where JSON was expected");
      return BeginString(State::kDelimited, /*key=*/false);
    default:
      word_.assign(1, c);
      state_ = State::kWord;
  }
}

void LiteralReader::StepKey(char c) {
  token_offset_ = offset_;
  key_.clear();
  if (c == '}' && state_ == State::kKeyOrEnd) return Close(c);
  if (c == '"') return BeginString(State::kString, /*key=*/true);
  if (syntax_.gemma && c == kStringDelimiterByte) {
    return BeginString(State::kDelimited, /*key=*/true);
  }
  if (syntax_.gemma && IsBareKeyChar(c)) {
    key_ = c;
    state_ = State::kBareKey;
    return;
  }
  Fail(syntax_.gemma ? "expected a key" : "expected a key in double quotes");
}

void LiteralReader::StepCommaOrEnd(char c) {
  if (c == '}' || c == ']') return Close(c);
  if (c != ',') return Fail("expected ',' or the end of the object or array");
  if (nest_.back() == '{') {
    state_ = syntax_.gemma ? State::kKeyOrEnd : State::kKey;
  } else {
    state_ = syntax_.gemma ? State::kValueOrEnd : State::kValue;
  }
}

void LiteralReader::StepEscape(char c) {
  if (high_surrogate_ != 0 && c != 'u') return Fail("half of a surrogate pair stands alone");
  state_ = State::kString;
  switch (c) {
    case '"':
    case '\\':
    case '/':
      return AppendToString({&c, 1});
    case 'b':
      return AppendToString("\b");
    case 'f':
      return AppendToString("\f");
    case 'n':
      return AppendToString("\n");
    case 'r':
      return AppendToString("\r");
    case 't':
      return AppendToString("\t");
    case 'u':
      unicode_ = 0;
      unicode_digits_ = 0;
      state_ = State::kUnicode;
      return;
    default:
      Fail("unknown escape in a string");
  }
}

void LiteralReader::StepUnicode(char c) {
  const int digit = HexDigit(c);
  if (digit < 0) return Fail("expected four hexadecimal digits after \\u");
  unicode_ = unicode_ << 4 | static_cast<unsigned>(digit);
  if (++unicode_digits_ < 4) return;
  state_ = State::kString;
  const bool high = unicode_ >= 0xD800 && unicode_ <= 0xDBFF;
  const bool low = unicode_ >= 0xDC00 && unicode_ <= 0xDFFF;
  if (low != (high_surrogate_ != 0)) return Fail("half of a surrogate pair stands alone");
  if (high) {
    high_surrogate_ = unicode_;
    return;
  }
  unsigned scalar = unicode_;
  if (low) scalar = 0x10000 + ((high_surrogate_ - 0xD800) << 10) + (unicode_ - 0xDC00);
  high_surrogate_ = 0;
  std::string utf8;
  AppendUtf8(utf8, scalar);
  AppendToString(utf8);
}

void LiteralReader::BeginString(State state, bool key) {
  state_ = state;
  string_is_key_ = key;
  if (!key && !too_deep_at_) json_.OpenString();
}

void LiteralReader::AppendToString(std::string_view part) {
  if (high_surrogate_ != 0) return Fail("half of a surrogate pair stands alone");
  if (string_is_key_) {
    key_ += part;
  } else if (!too_deep_at_) {
    json_.StringPart(part);
  }
}

void LiteralReader::EndString() {
  if (high_surrogate_ != 0) return Fail("half of a surrogate pair stands alone");
  if (string_is_key_) return BeginKeyedValue();
  if (!too_deep_at_) json_.CloseString();
  EndValue();
}

void LiteralReader::EndWord() {
  std::string_view word = word_;
  if (syntax_.gemma) {
    if (word == "True") word = "true";
    if (word == "False") word = "false";
    if (word == "None") word = "null";
  }
  if (word != "true" && word != "false" && word != "null" && !IsJsonNumber(word)) {
    return FailAt(token_offset_, "neither a number nor a constant; a string needs its quotes");
  }
  if (!IsFinite(word_)) return FailAt(token_offset_, "a number that is too large");
  if (!too_deep_at_) json_.Literal(word);
  EndValue();
}

void LiteralReader::Open(char bracket) {
  if (nest_.size() >= syntax_.max_depth && !too_deep_at_) too_deep_at_ = offset_;
  if (nest_.size() >= syntax_.hard_depth) {
    error_ = LiteralError{.too_deep = true,
                          .offset = *too_deep_at_,
                          .note = "values are nested deeper than the limit"};
    return;
  }
  nest_ += bracket;
  state_ = bracket == '{' ? State::kKeyOrEnd : State::kValueOrEnd;
  if (too_deep_at_) return;
  if (bracket == '{') {
    json_.BeginObject();
  } else {
    json_.BeginArray();
  }
}

void LiteralReader::Close(char bracket) {
  const bool object = nest_.back() == '{';
  if (object != (bracket == '}')) return Fail("a bracket is closed by the other kind");
  nest_.pop_back();
  if (!too_deep_at_) {
    if (object) {
      json_.EndObject();
    } else {
      json_.EndArray();
    }
  }
  EndValue();
}

void LiteralReader::BeginKeyedValue() {
  state_ = State::kColon;
  if (too_deep_at_) return;
  const bool fresh = json_.Key(key_);
  if (!fresh && syntax_.unique_keys) return FailAt(token_offset_, "a key is repeated");
  if (nest_.size() == 1) members_.push_back({.key = key_, .begin = json_.text().size()});
}

void LiteralReader::EndValue() {
  if (nest_.size() == 1 && nest_[0] == '{' && !too_deep_at_) {
    members_.back().end = json_.text().size();
  }
  state_ = nest_.empty() ? State::kDone : State::kCommaOrEnd;
}

void LiteralReader::FailAt(size_t offset, const char* note) {
  if (!error_) error_ = LiteralError{.too_deep = false, .offset = offset, .note = note};
}

LiteralValue ReadLiteral(std::string_view text, const LiteralSyntax& syntax) {
  LiteralReader reader(syntax);
  reader.Push(text);
  LiteralValue value;
  value.error = reader.Finish();
  if (!value.error) value.json = reader.json().Resolved();
  return value;
}

}  // namespace mference
