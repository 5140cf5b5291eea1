// Writes JSON as a stream, so that a document of any size costs one buffer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace mference {

// Takes the text in order, in pieces.
using TextSink = std::function<void(std::string_view)>;

// Pretty-prints with two spaces, or with `kCompact` on one line. The caller keeps the grammar:
// `Key` before every value of an object. `Finish` (or the destructor's absence of it: an unfinished
// document is simply not flushed) ends the text with a newline. Not thread-safe.
class JsonWriter {
 public:
  enum class Style { kPretty, kCompact };

  explicit JsonWriter(TextSink sink, Style style = Style::kPretty);

  void BeginObject();
  void EndObject();
  void BeginArray();
  void EndArray();
  void Key(std::string_view key);

  void String(std::string_view utf8);  // escapes what JSON needs; the text must be UTF-8
  void Int(int64_t value);
  void Uint(uint64_t value);
  void Double(double value);  // shortest text that reads back as the same double; finite only
  void Bool(bool value);

  void Finish();

 private:
  void BeforeValue();
  void NewLine();
  void Put(std::string_view text);

  TextSink sink_;
  Style style_;
  std::string buffer_;
  std::vector<bool> has_items_;  // one per open container
  bool after_key_ = false;
};

}  // namespace mference
