// A regular expression of a `Split` pre-tokenizer, compiled with PCRE2.
//
// The files are written for another engine (Oniguruma). Only constructs that mean the same in both
// are accepted, the rest is refused by name; `\s` is spelt out, because PCRE2 counts U+180E as
// white space and Unicode does not.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

// The names of PCRE2's types, so that its header stays out of this one.
struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace mference {

// Rewrites `pattern` for PCRE2. Throws kTokenizerInvalid, beginning with `where`, for a construct
// that is not supported.
std::string TranslatePattern(std::string_view pattern, const std::string& where);

// The working memory of matching; one per thread, for any number of patterns.
class MatchScratch {
 public:
  MatchScratch();

 private:
  friend class SplitPattern;
  struct Free {
    void operator()(pcre2_real_match_data_8* data) const;
    void operator()(pcre2_real_match_context_8* context) const;
    void operator()(pcre2_real_jit_stack_8* stack) const;
  };
  std::unique_ptr<pcre2_real_jit_stack_8, Free> stack_;  // null where there is no JIT
  std::unique_ptr<pcre2_real_match_data_8, Free> data_;
  std::unique_ptr<pcre2_real_match_context_8, Free> context_;
};

// Immutable; const members may be called from several threads with a scratch each.
class SplitPattern {
 public:
  static constexpr size_t kMaxPatternBytes = 16384;

  // Throws kTokenizerInvalid, beginning with `where`.
  SplitPattern(std::string_view pattern, const std::string& where);

  struct Range {
    size_t begin;
    size_t end;
  };

  // Finds the first match in `text` (valid UTF-8) at or after `from`; matches are never empty.
  // Throws kTokenizerInvalid when the pattern takes more than its bounded number of steps.
  bool Find(std::string_view text, size_t from, MatchScratch* scratch, Range* match) const;

  bool has_jit() const { return has_jit_; }
  size_t memory_bytes() const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::string where_;
  std::unique_ptr<pcre2_real_code_8, Free> code_;
  bool has_jit_ = false;
};

}  // namespace mference
