// A string that remembers, byte by byte, where it came from.
//
// A chat template mixes two kinds of text: its own literals, which may spell control tokens such as
// `<|im_end|>`, and text of the conversation, which must never become one. `TracedString` carries
// that distinction through every operation of the template engine, so that the tokenizer can be
// told which bytes may hold markers. Provenance is a run-length list: almost every string has one
// run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mference::jinja {

enum class Origin : uint8_t {
  kTemplate,  // a literal of the template, or a variable that the program itself set: trusted
  kData,      // text of messages, tools or client options: never holds a marker
};

class TracedString {
 public:
  TracedString() = default;
  TracedString(std::string text, Origin origin);

  const std::string& text() const { return text_; }
  size_t size() const { return text_.size(); }
  bool empty() const { return text_.empty(); }

  // Origin of the byte at `position`, which must be < size().
  Origin OriginAt(size_t position) const;
  bool HasData() const;

  void Append(std::string_view text, Origin origin);
  void Append(const TracedString& other) { AppendSlice(other, 0, other.size()); }
  // Appends bytes [begin, end) of `other`, which must not be `*this`.
  void AppendSlice(const TracedString& other, size_t begin, size_t end);
  TracedString Slice(size_t begin, size_t end) const;

  // Calls visit(begin, end, origin) for each maximal run of one origin, in order.
  template <typename Visit>
  void ForEachRun(Visit visit) const {
    size_t begin = 0;
    for (const Run& run : runs_) {
      visit(begin, run.end, run.origin);
      begin = run.end;
    }
  }

  friend bool operator==(const TracedString& a, const TracedString& b) {
    return a.text_ == b.text_;  // provenance never changes what a template computes
  }

 private:
  struct Run {
    size_t end;
    Origin origin;
  };

  void ExtendLastRun(size_t bytes, Origin origin);
  size_t RunIndex(size_t position) const;

  std::string text_;
  std::vector<Run> runs_;  // ends ascending, the last one is text_.size(); neighbours differ
};

}  // namespace mference::jinja
