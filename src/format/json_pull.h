// A pull parser for JSON documents that are too large, or too little trusted, for a tree.
//
// The caller says what it expects next; anything else is an error at once, with the path and the
// byte offset. Memory is one 64 KiB window plus the longest string asked for, whatever the document
// holds. Strings are checked to be UTF-8; nesting deeper than 64 is refused.
//
// For metadata with a schema, where an error should name its path. A vocabulary of 262,144 entries
// has no use for paths, and copying every string out of the window would show when it loads: it
// has a reader of its own, text/tokenizer/json_cursor.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/function_ref.h"

namespace mference {

// Not thread-safe. All failures are `Error(code, "NAME: PATH: problem at byte N")`.
class JsonPull {
 public:
  // `text` or `file` must outlive the parser. `name` is for messages.
  JsonPull(std::string_view text, std::string name, ErrorCode code);
  JsonPull(const FileDescriptor& file, uint64_t file_bytes, std::string name, ErrorCode code);

  // Reads an object; `on_member` is called with each key and must read exactly one value. The key
  // is valid until it does.
  void Object(FunctionRef<void(std::string_view key)> on_member);
  // Reads an array; `on_element` must read exactly one value.
  void Array(FunctionRef<void(size_t index)> on_element);

  std::string String(size_t max_bytes);
  uint64_t Uint();  // also accepts 5.0
  bool IsNull();    // consumes `null` if that comes next
  void Skip();      // any one value, still checked

  // Nothing but white space may follow.
  void End();

  [[noreturn]] void FailHere(std::string_view problem) const;

 private:
  static constexpr size_t kMaxDepth = 64;

  bool Refill();
  int PeekChar();   // -1 at the end
  char NextChar();  // fails at the end
  int PeekToken();  // PeekChar after white space
  void Expect(char c, const char* what);
  void Enter(char open, const char* what);
  void ReadStringInto(std::string& out, size_t max_bytes);
  void ReadEscape(std::string& out);
  uint32_t ReadHex4();
  std::string_view ReadNumber();
  void ReadLiteral(std::string_view literal);

  const FileDescriptor* file_ = nullptr;
  uint64_t file_bytes_ = 0;
  uint64_t consumed_before_window_ = 0;
  std::string window_storage_;
  std::string_view window_;
  size_t at_ = 0;

  std::string name_;
  ErrorCode code_;
  std::string path_ = "$";
  std::string scratch_;
  size_t depth_ = 0;
};

}  // namespace mference
