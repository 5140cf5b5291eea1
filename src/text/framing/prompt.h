// A framed prompt: its text, and which of its bytes may hold control tokens.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace mference {

// Bytes [begin, end) of the prompt.
struct PromptSpan {
  size_t begin = 0;
  size_t end = 0;
  // True for text of the template or the built-in framing, false for text of messages and tools. A
  // control token is recognised only where all of its bytes lie in trusted spans that touch; every
  // other byte sequence, also one that a template glued together from a literal and message text,
  // is ordinary text.
  bool trusted = false;
};

// `spans` covers `text` without gaps, neighbours differ in `trusted`. Ordinary text is tokenised
// over whole stretches between markers, across span borders: a border is no token border.
struct Prompt {
  std::string text;
  std::vector<PromptSpan> spans;
};

}  // namespace mference
