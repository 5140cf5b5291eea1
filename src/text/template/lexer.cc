#include "text/template/lexer.h"

#include <algorithm>
#include <cstdlib>

#include "text/template/template.h"
#include "text/template/unicode.h"

namespace mference::jinja {
namespace {

bool IsDigitChar(char c) { return c >= '0' && c <= '9'; }

// Letters, digits, '_' and everything beyond ASCII that Python counts as a word character.
bool IsNameAt(std::string_view text, size_t position) {
  return IsWordCharacter(DecodeAt(text, position));
}

// "\r\n" and "\r" become "\n".
std::string NormaliseNewlines(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormaliseNewlines(source)) {
    if (!source_.empty() && source_.back() == '\n') source_.pop_back();
  }

  std::vector<Token> Run() {
    while (position_ < source_.size()) Root();
    Push(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void Fail(const std::string& message) const { FailAt(line_, message); }
  [[noreturn]] static void FailAt(int line, const std::string& message) {
    throw TemplateError(TemplateErrorKind::kSyntax, message, "", line);
  }

  bool At(std::string_view text) const {
    return std::string_view(source_).substr(position_, text.size()) == text;
  }
  char Peek(size_t ahead = 0) const {
    return position_ + ahead < source_.size() ? source_[position_ + ahead] : '\0';
  }

  // Moves to `end`, counting lines.
  void Advance(size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(position_),
                                         source_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    position_ = end;
  }

  size_t SkipSpaceFrom(size_t position) const {
    while (position < source_.size() && IsSpace(DecodeAt(source_, position))) {
      position += CodePointBytes(source_, position);
    }
    return position;
  }

  size_t StripSpaceBefore(size_t begin, size_t end) const {
    while (end > begin) {
      const size_t previous = PreviousUtf8(source_, end);
      if (!IsSpace(DecodeAt(source_, previous))) break;
      end = previous;
    }
    return end;
  }

  void Push(TokenKind kind, std::string text = "", Value number = Value()) {
    tokens_.push_back({kind, line_, std::move(text), std::move(number)});
  }

  // Literal text up to the next tag, and that tag.
  void Root() {
    size_t tag = position_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        Push(TokenKind::kData, source_.substr(position_));
        Advance(source_.size());
        return;
      }
      if (std::string_view("{%#").find(source_[tag + 1]) != std::string_view::npos) break;
      ++tag;
    }
    const char type = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    Text(tag, sign, type != '{');
    Advance(tag + 2 + (sign == '-' || sign == '+' ? 1 : 0));
    if (type == '#') {
      Comment();
    } else if (type == '%') {
      if (!Raw()) Tag(TokenKind::kBlockBegin, TokenKind::kBlockEnd, "%}");
    } else {
      Tag(TokenKind::kVariableBegin, TokenKind::kVariableEnd, "}}");
    }
  }

  // Emits the literal text before the tag at `tag`, stripped as the tag's sign says.
  void Text(size_t tag, char sign, bool block) {
    size_t end = tag;
    if (sign == '-') {
      end = StripSpaceBefore(position_, tag);
    } else if (sign != '+' && block) {
      // lstrip_blocks: white space between the start of the line and the tag goes.
      const std::string_view text = std::string_view(source_).substr(position_, tag - position_);
      const size_t newline = text.rfind('\n');
      const bool found = newline != std::string_view::npos;
      const size_t line_start = found ? position_ + newline + 1 : position_;
      if ((found || line_starting_) && StripSpaceBefore(line_start, tag) == line_start) {
        end = line_start;
      }
    }
    if (end > position_) Push(TokenKind::kData, source_.substr(position_, end - position_));
    Advance(tag);
  }

  // Consumes the end of a tag if it is here: "-%}" and the space after it, "+%}", or "%}" and, for
  // blocks and comments, one newline (trim_blocks).
  bool TagEnd(std::string_view closer) {
    const bool variable = closer == "}}";
    const bool minus = Peek() == '-';
    const bool plus = Peek() == '+' && !variable;
    const size_t skip = minus || plus ? 1 : 0;
    if (std::string_view(source_).substr(std::min(position_ + skip, source_.size()), 2) != closer) {
      return false;
    }
    size_t end = position_ + skip + 2;
    if (minus) {
      end = SkipSpaceFrom(end);
    } else if (!plus && !variable && end < source_.size() && source_[end] == '\n') {
      ++end;
    }
    line_starting_ = source_[end - 1] == '\n';
    Advance(end);
    return true;
  }

  void Comment() {
    const int opened = line_;
    for (size_t close = position_;; ++close) {
      close = source_.find("#}", close);
      if (close == std::string::npos) FailAt(opened, "Missing end of comment tag");
      const bool sign =
          close > position_ && (source_[close - 1] == '-' || source_[close - 1] == '+');
      Advance(sign ? close - 1 : close);
      if (TagEnd("#}")) return;
    }
  }

  // After "{%": a raw block is copied, anything else is left alone.
  bool Raw() {
    size_t word = SkipSpaceFrom(position_);
    if (std::string_view(source_).substr(word, 3) != "raw") return false;
    size_t end = SkipSpaceFrom(word + 3);
    const bool minus = std::string_view(source_).substr(end, 3) == "-%}";
    if (!minus && std::string_view(source_).substr(end, 2) != "%}") return false;
    const int opened = line_;
    end = minus ? SkipSpaceFrom(end + 3) : end + 2;
    line_starting_ = source_[end - 1] == '\n';
    Advance(end);
    for (size_t tag = position_;; ++tag) {
      tag = source_.find("{%", tag);
      if (tag == std::string::npos) FailAt(opened, "Missing end of raw directive");
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      size_t after = SkipSpaceFrom(tag + 2 + (sign == '-' || sign == '+' ? 1 : 0));
      if (std::string_view(source_).substr(std::min(after, source_.size()), 6) != "endraw")
        continue;
      after = SkipSpaceFrom(after + 6);
      const size_t closer =
          after < source_.size() && (source_[after] == '-' || source_[after] == '+') ? after + 1
                                                                                     : after;
      if (std::string_view(source_).substr(std::min(closer, source_.size()), 2) != "%}") continue;
      Text(tag, sign, true);
      Advance(after);
      TagEnd("%}");
      return true;
    }
  }

  void Tag(TokenKind begin, TokenKind end, std::string_view closer) {
    Push(begin);
    std::vector<char> open;  // closers that are due
    while (true) {
      const size_t space = SkipSpaceFrom(position_);
      // A tag's end may not be skipped as white space, nor inside brackets, where it is operators.
      Advance(space);
      if (position_ >= source_.size()) return;  // the parser reports the missing end
      const int line = line_;
      if (open.empty() && TagEnd(closer)) {
        tokens_.push_back({end, line, "", Value()});
        return;
      }
      if (!Number() && !Name() && !StringLiteral()) Operator(open);
    }
  }

  // Digits with single underscores between them; the end, or `from` when there are none.
  size_t DigitsEnd(size_t from) const {
    size_t end = from;
    while (end < source_.size()) {
      if (IsDigitChar(source_[end])) {
        ++end;
      } else if (source_[end] == '_' && end > from && end + 1 < source_.size() &&
                 IsDigitChar(source_[end + 1])) {
        ++end;
      } else {
        break;
      }
    }
    return end;
  }

  std::string WithoutUnderscores(size_t begin, size_t end) const {
    std::string text = source_.substr(begin, end - begin);
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    return text;
  }

  bool Number() {
    if (!IsDigitChar(Peek())) return false;
    const size_t whole = DigitsEnd(position_);
    const bool after_dot = position_ > 0 && source_[position_ - 1] == '.';
    size_t end = whole;
    if (end + 1 < source_.size() && source_[end] == '.' && IsDigitChar(source_[end + 1])) {
      end = DigitsEnd(end + 1);
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const size_t sign =
          end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-') ? 1 : 0;
      const size_t exponent = DigitsEnd(end + 1 + sign);
      if (exponent > end + 1 + sign) end = exponent;
    }
    if (end > whole && !after_dot) {
      const std::string text = WithoutUnderscores(position_, end);
      Push(TokenKind::kFloat, "", Value::Number(std::strtod(text.c_str(), nullptr)));
      Advance(end);
      return true;
    }
    return Integer(whole);
  }

  bool Integer(size_t decimal_end) {
    const char prefix = Peek() == '0' ? static_cast<char>(Peek(1) | 0x20) : '\0';
    const int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
    size_t end = decimal_end;
    if (base != 10) {
      const auto digit = [&](size_t at) {
        if (at >= source_.size()) return -1;
        const char c = static_cast<char>(source_[at] | 0x20);
        const int value = IsDigitChar(source_[at]) ? source_[at] - '0'
                          : c >= 'a' && c <= 'f'   ? c - 'a' + 10
                                                   : 99;
        return value < base ? value : -1;
      };
      BigInt number;
      size_t at = position_ + 2;
      while (digit(at) >= 0 || (at < source_.size() && source_[at] == '_' && digit(at + 1) >= 0)) {
        if (source_[at] != '_') number = number * BigInt(base) + BigInt(digit(at));
        ++at;
      }
      if (at > position_ + 2) {
        Push(TokenKind::kInteger, "", Value::Int(std::move(number)));
        Advance(at);
        return true;
      }
    }
    // A leading zero stands alone: "01" is 0 followed by 1, which no rule accepts.
    if (Peek() == '0') {
      end = position_ + 1;
      while (end < source_.size() &&
             (source_[end] == '0' ||
              (source_[end] == '_' && end + 1 < source_.size() && source_[end + 1] == '0')))
        ++end;
    }
    auto number = BigInt::FromDecimal(WithoutUnderscores(position_, end));
    if (!number) Fail("an integer literal is too large");
    Push(TokenKind::kInteger, "", Value::Int(std::move(*number)));
    Advance(end);
    return true;
  }

  bool Name() {
    size_t end = position_;
    while (end < source_.size() && IsNameAt(source_, end)) end += CodePointBytes(source_, end);
    if (end == position_) return false;
    const char32_t first = DecodeAt(source_, position_);
    if (first != '_' && !IsAlpha(first)) Fail("Invalid character in identifier");
    Push(TokenKind::kName, source_.substr(position_, end - position_));
    Advance(end);
    return true;
  }

  bool StringLiteral() {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') return false;
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return false;  // an operator that does not exist: reported there
    Push(TokenKind::kString, Unescape(source_.substr(position_ + 1, end - position_ - 1)));
    Advance(end + 1);
    return true;
  }

  // Python's escapes; an unknown one stays as it is written.
  std::string Unescape(const std::string& body) const {
    std::string out;
    for (size_t i = 0; i < body.size();) {
      if (body[i] != '\\' || i + 1 >= body.size()) {
        out.push_back(body[i++]);
        continue;
      }
      const char c = body[i + 1];
      constexpr std::string_view kEscapes = "\\'\"abfnrtv";
      constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
      if (const size_t which = kEscapes.find(c); which != std::string_view::npos) {
        out.push_back(kMeanings[which]);
        i += 2;
      } else if (c == '\n') {
        i += 2;
      } else if (c >= '0' && c <= '7') {
        char32_t code = 0;
        size_t end = i + 1;
        while (end < body.size() && end < i + 4 && body[end] >= '0' && body[end] <= '7') {
          code = code * 8 + static_cast<char32_t>(body[end++] - '0');
        }
        AppendUtf8(out, code);
        i = end;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        AppendUtf8(out, HexEscape(body, i + 2, digits));
        i += 2 + digits;
      } else if (c == 'N') {
        Fail("\\N escapes in strings are not supported");
      } else {
        out.push_back('\\');
        ++i;
      }
    }
    return out;
  }

  char32_t HexEscape(const std::string& body, size_t begin, size_t digits) const {
    char32_t code = 0;
    for (size_t i = begin; i < begin + digits; ++i) {
      const char c = i < body.size() ? body[i] : '\0';
      const char lower = static_cast<char>(c | 0x20);
      if (!IsDigitChar(c) && (lower < 'a' || lower > 'f')) Fail("truncated escape in a string");
      code = code * 16 + static_cast<char32_t>(IsDigitChar(c) ? c - '0' : lower - 'a' + 10);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      Fail("illegal Unicode character in a string");
    return code;
  }

  void Operator(std::vector<char>& open) {
    constexpr std::string_view kLong[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kShort = "+-/*%~[](){}><=.:|,;";
    std::string op;
    for (const std::string_view candidate : kLong) {
      if (At(candidate)) op = candidate;
    }
    if (op.empty() && kShort.find(Peek()) != std::string_view::npos) op = Peek();
    if (op.empty()) {
      const size_t length = CodePointBytes(source_, position_);
      Fail(fmt::format("unexpected char '{}' at byte {}", source_.substr(position_, length),
                       position_));
    }
    if (op == "{" || op == "(" || op == "[") {
      open.push_back(op == "{" ? '}' : op == "(" ? ')' : ']');
    } else if (op == "}" || op == ")" || op == "]") {
      if (open.empty()) Fail(fmt::format("unexpected '{}'", op));
      if (open.back() != op[0])
        Fail(fmt::format("unexpected '{}', expected '{}'", op, open.back()));
      open.pop_back();
    }
    Push(TokenKind::kOperator, op);
    Advance(position_ + op.size());
  }

  std::string source_;
  size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string DescribeToken(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData:
      return "template data / text";
    case TokenKind::kVariableBegin:
      return "begin of print statement";
    case TokenKind::kVariableEnd:
      return "end of print statement";
    case TokenKind::kBlockBegin:
      return "begin of statement block";
    case TokenKind::kBlockEnd:
      return "end of statement block";
    case TokenKind::kName:
    case TokenKind::kOperator:
      return token.text;
    case TokenKind::kString:
      return "string";
    case TokenKind::kInteger:
      return "integer";
    case TokenKind::kFloat:
      return "float";
    case TokenKind::kEnd:
      return "end of template";
  }
  return "token";
}

std::vector<Token> Tokenize(std::string_view source) { return Lexer(source).Run(); }

}  // namespace mference::jinja
