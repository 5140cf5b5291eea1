// Python's two formatting languages: "%s" % x and "{}".format(x).
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/template/interpreter.h"
#include "text/template/operators.h"
#include "text/template/python_text.h"
#include "text/template/template.h"
#include "text/template/unicode.h"

namespace mference::jinja {
namespace {

constexpr int64_t kMaxWidth = 100'000;  // and precision

// One conversion, as either language describes it.
struct Spec {
  std::string fill = " ";
  char align = '\0';  // '<', '>', '^', '=' or none
  char sign = '-';    // '+', ' ' or '-'
  bool alternate = false;
  char grouping = '\0';  // ',' or '_'
  int64_t width = 0;
  std::optional<int64_t> precision;
  char type = '\0';
};

int64_t ParseDigits(std::string_view text, size_t& position) {
  int64_t number = 0;
  for (; position < text.size() && text[position] >= '0' && text[position] <= '9'; ++position) {
    number = number * 10 + (text[position] - '0');
    if (number > kMaxWidth) {
      throw TemplateError(TemplateErrorKind::kLimit, "a format's width or precision is too large");
    }
  }
  return number;
}

TracedString Pad(const TracedString& body, const Spec& spec, char default_align) {
  const auto length = static_cast<int64_t>(CountCodePoints(body.text()));
  if (length >= spec.width) return body;
  const auto missing = static_cast<size_t>(spec.width - length);
  const char align = spec.align != '\0' ? spec.align : default_align;
  // '=' pads between the sign and the digits.
  const bool has_sign =
      !body.empty() && (body.text()[0] == '-' || body.text()[0] == '+' || body.text()[0] == ' ');
  const size_t split = align == '=' && has_sign ? 1 : 0;
  const size_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  TracedString out = body.Slice(0, split);
  for (size_t i = 0; i < before; ++i) out.Append(spec.fill, Origin::kTemplate);
  out.AppendSlice(body, split, body.size());
  for (size_t i = before; i < missing; ++i) out.Append(spec.fill, Origin::kTemplate);
  return out;
}

std::string SignPrefix(bool negative, const Spec& spec) {
  if (negative) return "-";
  return spec.sign == '-' ? "" : std::string(1, spec.sign);
}

// Puts `separator` between groups of three (or four, for other bases) digits before the point.
std::string Group(const std::string& digits, char separator, size_t group) {
  size_t whole = 0;
  while (whole < digits.size() && std::isalnum(static_cast<unsigned char>(digits[whole])) != 0)
    ++whole;
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && i < whole && (whole - i) % group == 0) out.push_back(separator);
    out.push_back(digits[i]);
  }
  return out;
}

std::string DigitsInBase(BigInt magnitude, int64_t base) {
  std::string digits;
  do {
    BigInt quotient;
    BigInt remainder;
    BigInt::FloorDivide(magnitude, BigInt(base), &quotient, &remainder);
    digits.push_back("0123456789abcdef"[*remainder.ToInt64()]);
    magnitude = std::move(quotient);
  } while (!magnitude.zero());
  std::reverse(digits.begin(), digits.end());
  return digits;
}

BigInt IntegerOf(const Value& value) {
  if (value.IsBool()) return BigInt(value.boolean() ? 1 : 0);
  return value.big_int();
}

std::string FormatInteger(const Value& value, const Spec& spec) {
  const BigInt number = IntegerOf(value);
  BigInt magnitude = number.negative() ? -number : number;
  std::string prefix;
  std::string digits;
  switch (spec.type) {
    case 'x':
    case 'X':
      prefix = spec.type == 'x' ? "0x" : "0X";
      digits = DigitsInBase(std::move(magnitude), 16);
      break;
    case 'o':
      prefix = "0o";
      digits = DigitsInBase(std::move(magnitude), 8);
      break;
    case 'b':
      prefix = "0b";
      digits = DigitsInBase(std::move(magnitude), 2);
      break;
    default:
      digits = magnitude.ToString();
  }
  if (spec.type == 'X') {
    std::transform(digits.begin(), digits.end(), digits.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  }
  if (spec.precision && digits.size() < static_cast<size_t>(*spec.precision)) {
    digits.insert(0, static_cast<size_t>(*spec.precision) - digits.size(), '0');
  }
  if (spec.grouping != '\0') digits = Group(digits, spec.grouping, prefix.empty() ? 3 : 4);
  return SignPrefix(number.negative(), spec) + (spec.alternate ? prefix : "") + digits;
}

std::string FormatFloat(double number, const Spec& spec) {
  const bool negative = std::signbit(number) && !std::isnan(number);
  const double magnitude = std::abs(number);
  std::string digits;
  if (!std::isfinite(magnitude)) {
    digits = std::isnan(magnitude) ? "nan" : "inf";
    if (spec.type == 'F' || spec.type == 'E' || spec.type == 'G')
      digits = digits == "nan" ? "NAN" : "INF";
  } else if (spec.type == '\0' && !spec.precision) {
    digits = FloatRepr(magnitude);
  } else {
    const bool percent = spec.type == '%';
    const char type = percent ? 'f' : spec.type == '\0' || spec.type == 'n' ? 'g' : spec.type;
    const std::string format = fmt::format("%{}.*{}", spec.alternate ? "#" : "", type);
    const int precision = static_cast<int>(spec.precision.value_or(6));
    const double shown = percent ? magnitude * 100 : magnitude;
    const int size = std::snprintf(nullptr, 0, format.c_str(), precision, shown);
    digits.resize(static_cast<size_t>(size) + 1);
    std::snprintf(digits.data(), digits.size(), format.c_str(), precision, shown);
    digits.pop_back();
    const bool plain = digits.find_first_of(".e") == std::string::npos;
    if (spec.type == '\0' && plain) digits += ".0";
    if (percent) digits.push_back('%');
  }
  if (spec.grouping != '\0') digits = Group(digits, spec.grouping, 3);
  return SignPrefix(negative, spec) + digits;
}

bool IsFloatType(char type) {
  return std::string_view("eEfFgG%n").find(type) != std::string_view::npos;
}

TracedString Truncated(TracedString text, const Spec& spec) {
  if (!spec.precision) return text;
  size_t end = 0;
  for (int64_t i = 0; i < *spec.precision && end < text.size(); ++i) {
    end += CodePointBytes(text.text(), end);
  }
  return text.Slice(0, end);
}

Origin OriginOf(const Value& value) {
  return value.from_data() ? Origin::kData : Origin::kTemplate;
}

// ---- "%": one conversion after another, arguments taken from a tuple or looked up by name.

class PercentFormatter {
 public:
  PercentFormatter(const TracedString& format, const Value& arguments)
      : format_(format), arguments_(arguments) {}

  TracedString Run() {
    const std::string& text = format_.text();
    size_t copied = 0;
    while (position_ < text.size()) {
      if (text[position_] != '%') {
        ++position_;
        continue;
      }
      out_.AppendSlice(format_, copied, position_++);
      Convert();
      copied = position_;
    }
    out_.AppendSlice(format_, copied, text.size());
    const size_t given = arguments_.IsTuple() ? arguments_.items().size() : 1;
    const bool mapping = arguments_.IsDict() || arguments_.IsList();
    if (next_ < given && !mapping && !named_) {
      RaiseRuntime("not all arguments converted during string formatting");
    }
    return std::move(out_);
  }

 private:
  char Peek() const { return position_ < format_.size() ? format_.text()[position_] : '\0'; }

  Value NextArgument() {
    if (arguments_.IsTuple() ? next_ >= arguments_.items().size() : next_ >= 1) {
      RaiseRuntime("not enough arguments for format string");
    }
    const size_t index = next_++;
    return arguments_.IsTuple() ? arguments_.items()[index] : arguments_;
  }

  int64_t NextInteger() {
    const Value value = NextArgument();
    const auto number = AsIndex(value);
    if (!number || *number > kMaxWidth || *number < -kMaxWidth) RaiseRuntime("* wants int");
    return *number;
  }

  Value NamedArgument() {
    const size_t close = format_.text().find(')', position_);
    if (close == std::string::npos) RaiseRuntime("incomplete format key");
    const std::string key = format_.text().substr(position_ + 1, close - position_ - 1);
    position_ = close + 1;
    if (!arguments_.IsDict()) RaiseRuntime("format requires a mapping");
    const Value* found = arguments_.dict().Find(key);
    if (found == nullptr) RaiseRuntime(StringRepr(key));
    return *found;
  }

  void Convert() {
    Spec spec;
    std::optional<Value> argument;
    if (Peek() == '(') {
      argument = NamedArgument();
      named_ = true;
    }
    bool zero = false;
    for (;; ++position_) {
      if (Peek() == '-') {
        spec.align = '<';
      } else if (Peek() == '+') {
        spec.sign = '+';
      } else if (Peek() == ' ') {
        if (spec.sign != '+') spec.sign = ' ';
      } else if (Peek() == '#') {
        spec.alternate = true;
      } else if (Peek() == '0') {
        zero = true;
      } else {
        break;
      }
    }
    if (Peek() == '*') {
      ++position_;
      spec.width = NextInteger();
      if (spec.width < 0) {
        spec.align = '<';
        spec.width = -spec.width;
      }
    } else {
      spec.width = ParseDigits(format_.text(), position_);
    }
    if (Peek() == '.') {
      ++position_;
      if (Peek() == '*') {
        ++position_;
        spec.precision = std::max<int64_t>(0, NextInteger());
      } else {
        spec.precision = ParseDigits(format_.text(), position_);
      }
    }
    while (Peek() == 'h' || Peek() == 'l' || Peek() == 'L') ++position_;
    if (position_ >= format_.size()) RaiseRuntime("incomplete format");
    spec.type = Peek();
    ++position_;
    if (spec.type == '%') {
      out_.Append("%", Origin::kTemplate);
      return;
    }
    const Value value = argument ? *argument : NextArgument();
    Write(value, spec, zero);
  }

  void Write(const Value& value, Spec& spec, bool zero) {
    switch (spec.type) {
      case 's':
        out_.Append(Pad(Truncated(Str(value), spec), spec, '>'));
        return;
      case 'r':
      case 'a': {
        const Origin origin = Str(value).HasData() ? Origin::kData : OriginOf(value);
        out_.Append(Pad(Truncated(TracedString(Repr(value), origin), spec), spec, '>'));
        return;
      }
      case 'c':
        WriteCharacter(value, spec);
        return;
      default:
        break;
    }
    if (zero && spec.align == '\0') {
      spec.align = '=';
      spec.fill = "0";
    }
    std::string body;
    if (std::string_view("diuxXo").find(spec.type) != std::string_view::npos) {
      if (!IsNumber(value) ||
          (value.IsFloat() && std::string_view("xXo").find(spec.type) != std::string_view::npos)) {
        if (value.IsUndefined()) RaiseUndefined(value);
        RaiseRuntime(fmt::format("%{} format: a real number is required, not {}", spec.type,
                                 TypeName(value)));
      }
      if (std::string_view("iu").find(spec.type) != std::string_view::npos) spec.type = 'd';
      body = FormatInteger(value.IsFloat() ? RoundToInt(value.number().number) : value, spec);
    } else if (std::string_view("eEfFgG").find(spec.type) != std::string_view::npos) {
      if (value.IsUndefined()) RaiseUndefined(value);
      if (!IsNumber(value))
        RaiseRuntime(fmt::format("must be real number, not {}", TypeName(value)));
      body = FormatFloat(ToDouble(value), spec);
    } else {
      RaiseRuntime(fmt::format("unsupported format character '{}'", spec.type));
    }
    out_.Append(Pad(TracedString(std::move(body), OriginOf(value)), spec, '>'));
  }

  void WriteCharacter(const Value& value, const Spec& spec) {
    TracedString body;
    if (value.IsString() && CountCodePoints(value.text()) == 1) {
      body = value.string().traced;
    } else {
      const auto code = AsIndex(value);
      if (!code || *code < 0 || *code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000)) {
        RaiseRuntime("%c requires int or char");
      }
      std::string character;
      AppendUtf8(character, static_cast<char32_t>(*code));
      body.Append(character, OriginOf(value));
    }
    out_.Append(Pad(body, spec, '>'));
  }

  const TracedString& format_;
  const Value& arguments_;
  size_t position_ = 0;
  size_t next_ = 0;
  bool named_ = false;
  TracedString out_;
};

// ---- "{}": replacement fields with paths, conversions and specifications.

class BraceFormatter {
 public:
  BraceFormatter(Interpreter& interpreter, const CallArguments& arguments)
      : interpreter_(interpreter), arguments_(arguments) {}

  TracedString Run(const TracedString& format, int depth) {
    if (depth > 2) RaiseRuntime("Max string recursion exceeded");
    const std::string& text = format.text();
    TracedString out;
    size_t copied = 0;
    for (size_t i = 0; i < text.size();) {
      if (text[i] != '{' && text[i] != '}') {
        ++i;
        continue;
      }
      out.AppendSlice(format, copied, i);
      if (i + 1 < text.size() && text[i + 1] == text[i]) {
        out.AppendSlice(format, i, i + 1);
        i += 2;
      } else if (text[i] == '}') {
        RaiseRuntime("Single '}' encountered in format string");
      } else {
        const size_t end = FieldEnd(text, i);
        out.Append(Field(format.Slice(i + 1, end), depth));
        i = end + 1;
      }
      copied = i;
    }
    out.AppendSlice(format, copied, text.size());
    return out;
  }

 private:
  // Offset of the brace that closes the field opened at `open`.
  static size_t FieldEnd(const std::string& text, size_t open) {
    int nesting = 0;
    for (size_t i = open; i < text.size(); ++i) {
      if (text[i] == '{') ++nesting;
      if (text[i] == '}' && --nesting == 0) return i;
    }
    RaiseRuntime("expected '}' before end of string");
  }

  TracedString Field(const TracedString& field, int depth) {
    const std::string& text = field.text();
    size_t end = 0;
    bool bracket = false;
    for (; end < text.size(); ++end) {
      if (text[end] == '[') bracket = true;
      if (text[end] == ']') bracket = false;
      if (!bracket && (text[end] == '!' || text[end] == ':')) break;
    }
    Value value = Lookup(text.substr(0, end));
    if (end < text.size() && text[end] == '!') {
      if (end + 1 >= text.size())
        RaiseRuntime("end of string while looking for conversion specifier");
      const char conversion = text[end + 1];
      end += 2;
      if (conversion == 's') {
        value = Value::Str(Str(value));
      } else if (conversion == 'r' || conversion == 'a') {
        const Origin origin = Str(value).HasData() ? Origin::kData : OriginOf(value);
        value = Value::Str(Repr(value), origin);
      } else {
        RaiseRuntime(fmt::format("Unknown conversion specifier '{}'", conversion));
      }
      if (end < text.size() && text[end] != ':')
        RaiseRuntime("expected ':' after conversion specifier");
    }
    TracedString spec;
    if (end < text.size()) spec = Run(field.Slice(end + 1, text.size()), depth + 1);
    return Format(value, spec.text());
  }

  Value Lookup(const std::string& path) {
    const size_t first_end = std::min(path.find_first_of(".["), path.size());
    const std::string first = path.substr(0, first_end);
    Value value = First(first);
    for (size_t i = first_end; i < path.size();) {
      if (path[i] == '.') {
        const size_t end = std::min(path.find_first_of(".[", i + 1), path.size());
        if (end == i + 1) RaiseRuntime("Empty attribute in format string");
        value = interpreter_.GetAttribute(value, path.substr(i + 1, end - i - 1));
        i = end;
      } else if (path[i] == '[') {
        const size_t end = path.find(']', i);
        if (end == std::string::npos) RaiseRuntime("Missing ']' in format string");
        const std::string key = path.substr(i + 1, end - i - 1);
        const auto number = BigInt::FromDecimal(key);
        const bool index = number && key[0] != '-' && key[0] != '+';
        value = interpreter_.GetItem(
            value, index ? Value::Int(*number) : Value::Str(key, Origin::kTemplate));
        i = end + 1;
      } else {
        RaiseRuntime("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  Value First(const std::string& name) {
    const auto number = BigInt::FromDecimal(name);
    if (name.empty() || (number && name[0] != '-' && name[0] != '+')) {
      const Numbering numbering = name.empty() ? Numbering::kAutomatic : Numbering::kManual;
      if (numbering_ != Numbering::kNone && numbering_ != numbering) {
        RaiseRuntime("cannot switch between manual and automatic field numbering");
      }
      numbering_ = numbering;
      const int64_t index = name.empty() ? next_++ : number->ToInt64().value_or(-1);
      if (index < 0 || static_cast<size_t>(index) >= arguments_.positional.size()) {
        RaiseRuntime(fmt::format("Replacement index {} out of range for positional args tuple",
                                 name.empty() ? std::to_string(index) : name));
      }
      return arguments_.positional[static_cast<size_t>(index)];
    }
    for (const auto& [key, value] : arguments_.keyword) {
      if (key == name) return value;
    }
    RaiseRuntime(StringRepr(name));
  }

  static Spec ParseSpec(const std::string& text) {
    constexpr std::string_view kAligns = "<>^=";
    Spec spec;
    size_t i = 0;
    if (!text.empty()) {
      const size_t fill = CodePointBytes(text, 0);
      if (fill < text.size() && kAligns.find(text[fill]) != std::string_view::npos) {
        spec.fill = text.substr(0, fill);
        spec.align = text[fill];
        i = fill + 1;
      } else if (kAligns.find(text[0]) != std::string_view::npos) {
        spec.align = text[0];
        i = 1;
      }
    }
    const auto take = [&](std::string_view any) {
      return i < text.size() && any.find(text[i]) != std::string_view::npos ? text[i++] : '\0';
    };
    if (const char sign = take("+- ")) spec.sign = sign;
    take("z");
    spec.alternate = take("#") != '\0';
    if (take("0") != '\0' && spec.align == '\0') {
      spec.align = '=';
      spec.fill = "0";
    }
    spec.width = ParseDigits(text, i);
    if (const char grouping = take(",_")) spec.grouping = grouping;
    if (take(".") != '\0') {
      const size_t start = i;
      spec.precision = ParseDigits(text, i);
      if (i == start) RaiseRuntime("Format specifier missing precision");
    }
    if (i < text.size()) spec.type = text[i++];
    if (i < text.size()) RaiseRuntime("Invalid format specifier");
    return spec;
  }

  static TracedString Format(const Value& value, const std::string& text) {
    if (text.empty()) return Str(value);
    Spec spec = ParseSpec(text);
    const auto unknown = [&] {
      RaiseRuntime(fmt::format("Unknown format code '{}' for object of type '{}'", spec.type,
                               TypeName(value)));
    };
    if (value.IsString()) {
      if (spec.type != '\0' && spec.type != 's') unknown();
      if (spec.align == '=') {
        if (spec.fill != "0") RaiseRuntime("'=' alignment not allowed in string format specifier");
        spec.align = '<';
      }
      return Pad(Truncated(value.string().traced, spec), spec, '<');
    }
    // A bool formats as a string only without a type, which Python does by its own rule: as an int.
    if (value.IsInt() || value.IsBool()) {
      std::string body;
      if (spec.type == 'c') {
        const auto code = AsIndex(value);
        if (!code || *code < 0 || *code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000)) {
          RaiseRuntime("%c arg not in range(0x110000)");
        }
        AppendUtf8(body, static_cast<char32_t>(*code));
      } else if (IsFloatType(spec.type) && spec.type != '\0' && spec.type != 'n') {
        body = FormatFloat(ToDouble(value), spec);
      } else {
        if (std::string_view("bdoxXn").find(spec.type) == std::string_view::npos &&
            spec.type != '\0')
          unknown();
        if (spec.precision) RaiseRuntime("Precision not allowed in integer format specifier");
        body = FormatInteger(value, spec);
      }
      return Pad(TracedString(std::move(body), OriginOf(value)), spec, '>');
    }
    if (value.IsFloat()) {
      if (spec.type != '\0' && !IsFloatType(spec.type)) unknown();
      return Pad(TracedString(FormatFloat(value.number().number, spec), OriginOf(value)), spec,
                 '>');
    }
    if (value.IsUndefined()) return {};
    RaiseRuntime(fmt::format("unsupported format string passed to {}.__format__", TypeName(value)));
  }

  Interpreter& interpreter_;
  const CallArguments& arguments_;
  enum class Numbering { kNone, kAutomatic, kManual } numbering_ = Numbering::kNone;
  int64_t next_ = 0;
};

}  // namespace

TracedString PercentFormat(const TracedString& format, const Value& arguments) {
  return PercentFormatter(format, arguments).Run();
}

TracedString BraceFormat(Interpreter& interpreter, const TracedString& format,
                         const CallArguments& arguments) {
  return BraceFormatter(interpreter, arguments).Run(format, 0);
}

}  // namespace mference::jinja
