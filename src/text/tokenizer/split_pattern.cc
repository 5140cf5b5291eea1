#include "text/tokenizer/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cctype>

#include "base/error.h"

namespace mference {
namespace {

// The members of White_Space, for use inside a class.
constexpr std::string_view kWhiteSpace =
    R"(\x09-\x0D\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

// Enough for any pattern of the families (they take a few steps per character); a pattern with
// nested repeats is stopped within a second.
constexpr uint32_t kMatchLimit = 20'000'000;
constexpr size_t kJitStackStart = size_t{32} << 10;
constexpr size_t kJitStackMax = size_t{1} << 20;

// Copies a pattern construct by construct.
class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where)
      : pattern_(pattern), where_(where) {}

  std::string Run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        Escape(/*in_class=*/false);
      } else if (c == '[') {
        Class();
      } else if (c == '(') {
        Group();
      } else if (c == '^' || c == '$') {
        Refuse("an anchor");
      } else {
        const bool counted = c == '}';
        Copy(1);
        // Here the engines disagree: a possessive count in one, a repeat of a repeat in the other.
        if (counted && Next() == '+') Refuse("'+' after a counted repeat");
      }
    }
    return std::move(out_);
  }

 private:
  char Next(size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }

  void Copy(size_t count) {
    out_.append(pattern_, at_, count);
    at_ += count;
  }

  [[noreturn]] void Refuse(std::string_view what) const {
    Fail(ErrorCode::kTokenizerInvalid,
         "{}: {} at byte {} of the pattern is not supported; this tokenizer needs a newer version",
         where_, what, at_);
  }

  void Escape(bool in_class) {
    const char c = Next(1);
    switch (c) {
      case 'r':
      case 'n':
      case 't':
      case 'f':
        Copy(2);
        return;
      case 'd':
        out_ += R"(\p{Nd})";
        break;
      case 's':
        out_ += in_class ? std::string(kWhiteSpace) : '[' + std::string(kWhiteSpace) + ']';
        break;
      case 'S':
        if (in_class) Refuse("'\\S' in a class");
        out_ += "[^" + std::string(kWhiteSpace) + ']';
        break;
      case 'p':
      case 'P':
        Property();
        return;
      default:
        if (c == '\0' || std::isalnum(static_cast<uint8_t>(c)) || static_cast<uint8_t>(c) >= 0x80) {
          Refuse(fmt::format("'\\{}'", c == '\0' ? ' ' : c));
        }
        Copy(2);
        return;
    }
    at_ += 2;
  }

  // \p{L}, \p{Lu}: general categories mean the same everywhere, scripts do not.
  void Property() {
    static constexpr std::string_view kCategories =
        " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp "
        "C Cc Cf Co Cn ";
    const size_t close = pattern_.find('}', at_);
    if (Next(2) != '{' || close == std::string_view::npos) Refuse("'\\p' without a name in braces");
    const std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    const bool known = !name.empty() && name.find(' ') == std::string_view::npos &&
                       kCategories.find(fmt::format(" {} ", name)) != std::string_view::npos;
    if (!known) Refuse(fmt::format("the property '{}'", name));
    Copy(close + 1 - at_);
  }

  void Class() {
    Copy(1);
    if (Next() == '^') Copy(1);
    if (Next() == ']') Refuse("a class that begins with ']'");
    while (Next() != ']') {
      if (at_ >= pattern_.size()) Refuse("a class without an end");
      if (Next() == '[') Refuse("'[' in a class");
      if (Next() == '&' && Next(1) == '&') Refuse("'&&' in a class");
      if (Next() == '\\') {
        Escape(/*in_class=*/true);
      } else {
        Copy(1);
      }
    }
    Copy(1);
  }

  void Group() {
    static constexpr std::array<std::string_view, 4> kKinds = {"(?i:", "(?:", "(?!", "(?="};
    const std::string_view rest = pattern_.substr(at_);
    if (Next(1) == '*') Refuse("'(*'");
    if (Next(1) != '?') {
      Copy(1);
      return;
    }
    for (const std::string_view kind : kKinds) {
      if (rest.substr(0, kind.size()) == kind) {
        Copy(kind.size());
        return;
      }
    }
    Refuse(fmt::format("the group '{}'", rest.substr(0, 3)));
  }

  std::string_view pattern_;
  const std::string& where_;
  size_t at_ = 0;
  std::string out_;
};

std::string PcreMessage(int code) {
  std::array<PCRE2_UCHAR, 256> text = {};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR Units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

std::string TranslatePattern(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).Run();
}

void MatchScratch::Free::operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
void MatchScratch::Free::operator()(pcre2_match_context* context) const {
  pcre2_match_context_free(context);
}
void MatchScratch::Free::operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }

MatchScratch::MatchScratch()
    : stack_(pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr)),
      data_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)) {
  if (data_ == nullptr || context_ == nullptr) throw std::bad_alloc();
  pcre2_set_match_limit(context_.get(), kMatchLimit);
  if (stack_ != nullptr) pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
}

void SplitPattern::Free::operator()(pcre2_code* code) const { pcre2_code_free(code); }

SplitPattern::SplitPattern(std::string_view pattern, const std::string& where) : where_(where) {
  if (pattern.empty() || pattern.size() > kMaxPatternBytes) {
    Fail(ErrorCode::kTokenizerInvalid, "{}: expected a pattern of 1 to {} bytes, found {}", where,
         kMaxPatternBytes, pattern.size());
  }
  const std::string translated = TranslatePattern(pattern, where);
  struct FreeContext {
    void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  };
  const std::unique_ptr<pcre2_compile_context, FreeContext> context(
      pcre2_compile_context_create(nullptr));
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 32);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_.reset(pcre2_compile(Units(translated), translated.size(),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                            context.get()));
  if (code_ == nullptr) {
    Fail(ErrorCode::kTokenizerInvalid, "{}: the pattern does not compile: {} (at byte {} of '{}')",
         where, PcreMessage(error), offset, translated);
  }
  uint32_t matches_empty = 0;
  pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    Fail(ErrorCode::kTokenizerInvalid, "{}: the pattern can match the empty text; not supported",
         where);
  }
  // Without a JIT (a hardened kernel, an unusual processor) the interpreter gives the same matches.
  has_jit_ = pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE) == 0;
}

bool SplitPattern::Find(std::string_view text, size_t from, MatchScratch* scratch,
                        Range* match) const {
  const auto run = has_jit_ ? pcre2_jit_match : pcre2_match;
  const int result = run(code_.get(), Units(text), text.size(), from, PCRE2_NO_UTF_CHECK,
                         scratch->data_.get(), scratch->context_.get());
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0) {
    Fail(ErrorCode::kTokenizerInvalid, "{}: matching the pattern at byte {} of {} failed: {}",
         where_, from, text.size(), PcreMessage(result));
  }
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(scratch->data_.get());
  *match = {bounds[0], bounds[1]};
  return true;
}

size_t SplitPattern::memory_bytes() const {
  size_t code = 0;
  size_t jit = 0;
  pcre2_pattern_info(code_.get(), PCRE2_INFO_SIZE, &code);
  pcre2_pattern_info(code_.get(), PCRE2_INFO_JITSIZE, &jit);
  return code + jit;
}

}  // namespace mference
