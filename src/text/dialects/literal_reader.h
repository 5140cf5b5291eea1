// The values that calls are made of, read as they arrive: JSON, and Gemma's relative of it.
//
// One push parser serves every dialect. It turns input bytes into compact JSON text, so arguments
// can be streamed while the model writes them, uses no recursion (a nest of brackets costs a byte
// each), and reports the first error with its place. Nesting beyond the limit is still checked for
// syntax, without being kept, because a value that is not JSON at all may be a plain string to its
// dialect, while one that is JSON but too deep is refused.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/dialects/json_text.h"

namespace mference {

// Stands for the <|"|> token in the text of a Gemma call. The byte never occurs in UTF-8.
inline constexpr char kStringDelimiterByte = '\xFF';

struct LiteralSyntax {
  // Gemma: keys bare or in string delimiters too, delimited strings (raw, no escapes), trailing
  // commas, Python's True, False and None.
  bool gemma = false;
  bool unique_keys = false;  // a repeated key is an error
  size_t max_depth = 64;     // deeper values are `too_deep` if their syntax holds ...
  size_t hard_depth = 1024;  // ... and beyond this in any case
};

struct LiteralError {
  bool too_deep = false;  // else a syntax error
  size_t offset = 0;      // in the bytes pushed
  const char* note = "";
};

class LiteralReader {
 public:
  // A member of the outermost object. The value stands at [begin, end) of json().text(); `end` is
  // npos while it is open.
  struct Member {
    std::string key;
    size_t begin = 0;
    size_t end = std::string::npos;
  };

  explicit LiteralReader(const LiteralSyntax& syntax) : syntax_(syntax) {}

  // Input of whole scalars. Ignored after a syntax error.
  void Push(std::string_view text);
  // The end of the input. The first error, or nothing if it was exactly one value.
  std::optional<LiteralError> Finish();

  const JsonText& json() const { return json_; }
  std::span<const Member> members() const { return members_; }

 private:
  enum class State {
    kValue,
    kValueOrEnd,  // first element of an array, or after its comma in Gemma's syntax
    kKey,
    kKeyOrEnd,  // the same for objects
    kColon,
    kCommaOrEnd,
    kDone,
    kWord,  // a number or constant
    kBareKey,
    kString,     // a JSON string
    kEscape,     // after its backslash
    kUnicode,    // inside \uXXXX
    kDelimited,  // Gemma's raw string
  };

  void Step(char c);
  void StepValue(char c);
  void StepKey(char c);
  void StepCommaOrEnd(char c);
  void StepEscape(char c);
  void StepUnicode(char c);
  size_t StringRun(std::string_view text) const;
  void BeginString(State state, bool key);
  void AppendToString(std::string_view part);
  void EndString();
  void EndWord();
  void Open(char bracket);
  void Close(char bracket);
  void BeginKeyedValue();
  void EndValue();
  void Fail(const char* note) { FailAt(offset_, note); }
  void FailAt(size_t offset, const char* note);

  LiteralSyntax syntax_;
  State state_ = State::kValue;
  JsonText json_;
  std::string nest_;  // the open brackets, outermost first
  std::vector<Member> members_;
  std::string word_;  // number, constant or bare key so far
  std::string key_;   // key string so far
  bool string_is_key_ = false;
  size_t token_offset_ = 0;  // where the string, word or bracket began
  size_t unicode_digits_ = 0;
  unsigned unicode_ = 0;
  unsigned high_surrogate_ = 0;
  size_t offset_ = 0;
  std::optional<LiteralError> error_;
  std::optional<size_t> too_deep_at_;  // from here on only the syntax is checked
};

// The value of `text`, all of it, as compact JSON; or its first error.
struct LiteralValue {
  std::string json;  // repeated keys resolved
  std::optional<LiteralError> error;
};
LiteralValue ReadLiteral(std::string_view text, const LiteralSyntax& syntax);

}  // namespace mference
