// A forward-only JSON reader with a fixed window, for vocabularies too large to hold as a tree.
//
// The caller says what it expects next; anything else is an error with the byte offset. Only one
// window of the file is in memory, so reading 32 MB costs a quarter of a megabyte.
//
// Unlike format/json_pull.h it keeps no path, hands out views into the window, can begin in the
// middle of a file and step over what it will come back to: what loading a vocabulary needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace mference {

class JsonCursor {
 public:
  // Fills the span with the input's bytes from `offset` on; never asked beyond `size`.
  using ReadAt = std::function<void(uint64_t offset, std::span<std::byte> out)>;

  static constexpr size_t kWindowBytes = size_t{256} << 10;
  static constexpr size_t kMaxStringBytes = size_t{64} << 10;

  // Starts at byte `offset` of an input of `size` bytes. `name` begins every message; all errors
  // are kTokenizerInvalid.
  JsonCursor(ReadAt read, uint64_t size, std::string name, uint64_t offset = 0);

  // Objects: BeginObject, then NextKey until it returns false; each key is followed by its value.
  void BeginObject();
  bool NextKey(std::string* key);

  // Arrays: BeginArray, then NextElement until it returns false.
  void BeginArray();
  bool NextElement();

  // The first character of the next value ('"', '{', '[', a digit, ...), '\0' at the end of input.
  char Peek();

  // Valid UTF-8, escapes resolved. The view lives until the next call of any member.
  std::string_view String();

  // A whole number without fraction or exponent, at most 15 digits.
  int64_t Int();

  // Copies the text of any value of at most `max_bytes`; the caller parses it.
  void Capture(size_t max_bytes, std::string* out);

  // Steps over any value.
  void Skip();

  // Requires that nothing but white space follows.
  void ExpectEnd();

  // Byte offset of the next unread character.
  uint64_t offset() const { return base_ + position_; }
  const std::string& name() const { return name_; }

  template <typename... Args>
  [[noreturn]] void FailHere(fmt::format_string<Args...> format, Args&&... args) const {
    Fail(ErrorCode::kTokenizerInvalid, "{}: byte {}: {}", name_, offset(),
         fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  bool Refill(size_t keep_from);
  void SkipSpace();
  std::string Found();
  void Expect(char character, const char* what);
  bool NextMember(char close, const char* container);
  std::string_view EscapedString(size_t begin, size_t escape);
  void ReadEscape();
  uint32_t ReadHex4();
  char ReadByte();
  void Walk(size_t max_bytes, std::string* out);

  ReadAt read_;
  uint64_t size_;
  std::string name_;
  std::vector<char> window_;
  uint64_t base_;        // offset of window_[0]
  size_t position_ = 0;  // next unread byte in the window
  size_t end_ = 0;       // end of the valid part of the window
  bool first_ = false;   // the innermost open container has had no member yet
  std::string unescaped_;
};

}  // namespace mference
