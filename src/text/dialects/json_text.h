// Compact JSON text under construction: how the arguments of a call are written.
//
// Numbers and constants are copied as given, so digits survive that no number type holds. Repeated
// keys are written as they come (the text may be streamed while it grows); `Resolved` gives the
// text in which the last one of each counts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace mference {

class JsonText {
 public:
  void BeginObject();
  void EndObject();
  void BeginArray();
  void EndArray();
  // Begins a member of the open object. False when the key stands there already.
  bool Key(std::string_view key);
  void String(std::string_view value);
  // The same in parts, each of whole scalars.
  void OpenString();
  void StringPart(std::string_view part);
  void CloseString();
  // A number, a constant or any finished JSON text.
  void Literal(std::string_view text);

  const std::string& text() const { return text_; }
  size_t depth() const { return open_.size(); }  // open objects and arrays
  std::string Resolved() const { return Resolved(0, text_.size()); }
  // The same for the value that stands at [begin, end) of text().
  std::string Resolved(size_t begin, size_t end) const;

 private:
  struct Container {
    bool object = false;
    size_t elements = 0;
    std::unordered_map<std::string, size_t> member;  // key -> index of its last occurrence
    std::vector<size_t> member_begin;                // offset in text_ of each member's key
  };

  void Separate();  // the comma before an array's element

  std::string text_;
  std::vector<Container> open_;
  std::vector<std::pair<size_t, size_t>> superseded_;  // members that a later one replaces
};

// Appends `text` with JSON's escapes, without the quotes. `/` and non-ASCII stay as they are.
void AppendJsonEscaped(std::string_view text, std::string* out);

// The string that JSON text written by `JsonText`, quotes included, stands for.
std::string DecodeJsonString(std::string_view quoted);

}  // namespace mference
