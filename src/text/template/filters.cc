// The filters of the language that work on single values and text; see sequence_filters.cc for
// those on sequences. Each follows its namesake in Jinja2 3.1.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "text/template/builtins.h"
#include "text/template/interpreter.h"
#include "text/template/operators.h"
#include "text/template/python_text.h"
#include "text/template/sequence_filters.h"
#include "text/template/template.h"
#include "text/template/unicode.h"

namespace mference::jinja {
namespace {

using Arguments = CallArguments;

// soft_str: strings stay what they are (markup too), anything else becomes its text.
Value Soft(const Value& value) { return value.IsString() ? value : Value::Str(Str(value)); }

// A filter that is a string method by another name.
template <const char* const& method>
Value ViaMethod(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  return CallStringMethod(interpreter, Soft(input), method, arguments);
}

constexpr const char* kUpperName = "upper";
constexpr const char* kLowerName = "lower";
constexpr const char* kCapitalizeName = "capitalize";
constexpr const char* kStripName = "strip";

Value Center(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto bound = Bind("center", arguments, {"width"});
  Arguments call;
  call.positional.push_back(bound[0].value_or(Value::Int(80)));
  return CallStringMethod(interpreter, Soft(input), "center", call);
}

Value Title(Interpreter&, const Value& input, Arguments& arguments) {
  Bind("title", arguments, {});
  // A word begins after white space or one of - ( { [ <, unlike in str.title.
  const TracedString source = Soft(input).string().traced;
  TracedString out;
  bool begins = true;
  source.ForEachRun([&](size_t begin, size_t end, Origin origin) {
    std::string piece;
    for (size_t i = begin; i < end; i += CodePointBytes(source.text(), i)) {
      const char32_t c = DecodeAt(source.text(), i);
      const bool boundary =
          IsSpace(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) !=
                                         std::string_view::npos);
      if (boundary) {
        AppendUtf8(piece, c);
      } else if (begins) {
        AppendUpper(piece, c);
      } else {
        AppendLower(piece, c);
      }
      begins = boundary;
    }
    out.Append(piece, origin);
  });
  return Value::Str(std::move(out));
}

Value Replace(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto bound = Bind("replace", arguments, {"old", "new", "count"}, 2);
  Arguments call;
  call.positional = {Value::Str(Str(*bound[0])), Value::Str(Str(*bound[1]))};
  if (bound[2] && !bound[2]->IsNone()) call.positional.push_back(*bound[2]);
  return CallStringMethod(interpreter, Value::Str(Str(input)), "replace", call);
}

Value ToString(Interpreter&, const Value& input, Arguments& arguments) {
  Bind("string", arguments, {});
  return Soft(input);
}

Value MarkSafe(Interpreter&, const Value& input, Arguments& arguments) {
  Bind("safe", arguments, {});
  return Value::Str(Str(input), true);
}

Value Escape(Interpreter&, const Value& input, Arguments& arguments) {
  Bind("escape", arguments, {});
  if (input.IsString() && input.string().markup) return input;
  return Value::Str(EscapeHtml(Str(input)), true);
}

Value ForceEscape(Interpreter&, const Value& input, Arguments& arguments) {
  Bind("forceescape", arguments, {});
  return Value::Str(EscapeHtml(Str(input)), true);
}

Value Format(Interpreter&, const Value& input, Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.keyword.empty()) {
    RaiseRuntime("can't handle positional and keyword arguments at the same time");
  }
  const Value format = Soft(input);
  if (arguments.keyword.empty()) {
    return Binary(BinaryOperator::kModulo, format,
                  Value::MakeTuple(std::move(arguments.positional)));
  }
  Dict named;
  for (auto& [name, value] : arguments.keyword) {
    named.Set(Value::Str(name, Origin::kTemplate), std::move(value));
  }
  return Binary(BinaryOperator::kModulo, format, Value::MakeDict(std::move(named)));
}

Value Default(Interpreter&, const Value& input, Arguments& arguments) {
  const auto bound = Bind("default", arguments, {"default_value", "boolean"});
  const bool boolean = bound[1] && Truth(*bound[1]);
  if (!input.IsUndefined() && (!boolean || Truth(input))) return input;
  return bound[0].value_or(Value::Str("", Origin::kTemplate));
}

Value Absolute(Interpreter&, const Value& input, Arguments& arguments) {
  Bind("abs", arguments, {});
  if (input.IsUndefined()) RaiseUndefined(input);
  if (!IsNumber(input))
    RaiseRuntime(fmt::format("bad operand type for abs(): '{}'", TypeName(input)));
  if (input.IsFloat()) return Value::Number(std::abs(input.number().number));
  const Value positive = Plus(input);
  return Compare(positive, Value::Int(0), Order::kLess) ? Negate(positive) : positive;
}

// A text as Python's int() reads it; nothing when it is none.
std::optional<Value> ParseInteger(std::string text, int64_t base) {
  const auto is_space = [](unsigned char c) { return IsSpace(c); };
  while (!text.empty() && is_space(static_cast<unsigned char>(text.back()))) text.pop_back();
  const auto first = std::find_if_not(text.begin(), text.end(), is_space);
  text.erase(text.begin(), first);
  bool negative = false;
  size_t i = 0;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    i = 1;
  }
  if (i + 1 < text.size() && text[i] == '0') {
    const char mark = static_cast<char>(text[i + 1] | 0x20);
    const int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      base = marked;
      i += 2;
      if (i < text.size() && text[i] == '_') ++i;
    }
  }
  if (base == 0) base = 10;
  BigInt number;
  bool digit_before = false;
  constexpr size_t kMaxDigits = 5000;
  if (text.size() > kMaxDigits) return std::nullopt;
  for (; i < text.size(); ++i) {
    if (text[i] == '_' && digit_before && i + 1 < text.size()) {
      digit_before = false;
      continue;
    }
    const char lower = static_cast<char>(text[i] | 0x20);
    const int64_t digit = text[i] >= '0' && text[i] <= '9' ? text[i] - '0'
                          : lower >= 'a' && lower <= 'z'   ? lower - 'a' + 10
                                                           : 99;
    if (digit >= base) return std::nullopt;
    number = number * BigInt(base) + BigInt(digit);
    digit_before = true;
  }
  if (!digit_before) return std::nullopt;
  return Value::Int(negative ? -number : number);
}

// A text as Python's float() reads it.
std::optional<double> ParseFloat(std::string text) {
  const auto is_space = [](unsigned char c) { return IsSpace(c); };
  while (!text.empty() && is_space(static_cast<unsigned char>(text.back()))) text.pop_back();
  text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), is_space));
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') continue;
    const auto digit = [&](size_t at) {
      return at < text.size() && text[at] >= '0' && text[at] <= '9';
    };
    if (i == 0 || !digit(i - 1) || !digit(i + 1)) return std::nullopt;
  }
  text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
  // strtod also takes hexadecimal and nan(...), which Python does not.
  if (text.empty() || text.find_first_of("xXpP(") != std::string::npos ||
      is_space(static_cast<unsigned char>(text[0]))) {
    return std::nullopt;
  }
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  return end == text.c_str() + text.size() ? std::optional<double>(number) : std::nullopt;
}

// float(value) where Python allows it; nothing for a ValueError or TypeError.
std::optional<double> AsFloat(const Value& value) {
  if (value.IsUndefined()) RaiseUndefined(value);
  if (IsNumber(value)) return ToDouble(value);
  if (value.IsString()) return ParseFloat(value.text());
  return std::nullopt;
}

Value ToInt(Interpreter&, const Value& input, Arguments& arguments) {
  const auto bound = Bind("int", arguments, {"default", "base"});
  const Value otherwise = bound[0].value_or(Value::Int(0));
  const int64_t base = bound[1] ? AsIndex(*bound[1]).value_or(10) : 10;
  if (base != 0 && (base < 2 || base > 36)) return otherwise;
  if (input.IsUndefined()) RaiseUndefined(input);
  if (input.IsBool() || input.IsInt()) return Plus(input);
  if (input.IsString()) {
    if (auto integer = ParseInteger(input.text(), base)) return *integer;
  }
  const auto number = AsFloat(input);
  if (!number || !std::isfinite(*number)) {
    if (input.IsFloat() && !std::isnan(*number)) return RoundToInt(*number);  // raises
    return otherwise;
  }
  return RoundToInt(*number);
}

Value ToFloat(Interpreter&, const Value& input, Arguments& arguments) {
  const auto bound = Bind("float", arguments, {"default"});
  const auto number = AsFloat(input);
  return number ? Value::Number(*number) : bound[0].value_or(Value::Number(0.0));
}

// round(value, digits) of a double: correctly rounded in decimal, ties to even.
double RoundDecimal(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits >= 0) {
    return std::strtod(fmt::format("{:.{}f}", value, static_cast<int>(digits)).c_str(), nullptr);
  }
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / scale) * scale;
}

Value RoundInteger(const Value& value, int64_t digits) {
  if (digits >= 0) return Plus(value);
  if (digits < -4000) return Value::Int(0);
  const Value scale = Binary(BinaryOperator::kPower, Value::Int(10), Value::Int(-digits));
  const Value remainder = Binary(BinaryOperator::kModulo, value, scale);
  Value low = Binary(BinaryOperator::kSubtract, value, remainder);
  const Value twice = Binary(BinaryOperator::kMultiply, remainder, Value::Int(2));
  const Value quotient = Binary(BinaryOperator::kFloorDivide, low, scale);
  const bool odd = Equal(Binary(BinaryOperator::kModulo, quotient, Value::Int(2)), Value::Int(1));
  const bool up = Compare(twice, scale, Order::kGreater) || (Equal(twice, scale) && odd);
  return up ? Binary(BinaryOperator::kAdd, low, scale) : low;
}

Value Round(Interpreter&, const Value& input, Arguments& arguments) {
  const auto bound = Bind("round", arguments, {"precision", "method"});
  const int64_t digits = bound[0] ? AsIndex(*bound[0]).value_or(0) : 0;
  const std::string method = bound[1] && bound[1]->IsString() ? bound[1]->text() : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    RaiseRuntime("method must be common, ceil or floor");
  }
  if (input.IsUndefined()) RaiseUndefined(input);
  if (!IsNumber(input)) {
    RaiseRuntime(fmt::format("type {} doesn't define __round__ method", TypeName(input)));
  }
  if (method == "common") {
    return input.IsFloat() ? Value::Number(RoundDecimal(input.number().number, digits))
                           : RoundInteger(input, digits);
  }
  const Value scale = Binary(BinaryOperator::kPower, Value::Int(10), Value::Int(digits));
  const double scaled = ToDouble(Binary(BinaryOperator::kMultiply, input, scale));
  const Value whole = RoundToInt(method == "ceil" ? std::ceil(scaled) : std::floor(scaled));
  return Binary(BinaryOperator::kDivide, whole, scale);
}

Value Indent(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto bound = Bind("indent", arguments, {"width", "first", "blank"});
  if (!input.IsString()) RaiseRuntime("indent needs a string");
  TracedString indention;
  if (bound[0] && bound[0]->IsString()) {
    indention = bound[0]->string().traced;
  } else {
    const int64_t width = bound[0] ? AsIndex(*bound[0]).value_or(4) : 4;
    constexpr int64_t kMaxIndent = 10'000;
    if (width > kMaxIndent) throw TemplateError(TemplateErrorKind::kLimit, "an indent is too wide");
    indention.Append(std::string(static_cast<size_t>(std::max<int64_t>(0, width)), ' '),
                     Origin::kTemplate);
  }
  const bool first = bound[1] && Truth(*bound[1]);
  const bool blank = bound[2] && Truth(*bound[2]);
  Arguments none;
  const Value text =
      Binary(BinaryOperator::kAdd, input,
             Value::Str(TracedString("\n", Origin::kTemplate), input.string().markup));
  const Value lines = CallStringMethod(interpreter, text, "splitlines", none);
  TracedString out;
  for (size_t i = 0; i < lines.items().size(); ++i) {
    const TracedString& line = lines.items()[i].string().traced;
    if (i > 0) out.Append("\n", Origin::kTemplate);
    if (i == 0 ? first : blank || !line.empty()) {
      interpreter.ChargeBytes(indention.size());
      out.Append(indention);
    }
    out.Append(line);
  }
  return Value::Str(std::move(out), input.string().markup);
}

Value Truncate(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto bound = Bind("truncate", arguments, {"length", "killwords", "end", "leeway"});
  if (!input.IsString()) RaiseRuntime("truncate needs a string");
  const int64_t length = bound[0] ? AsIndex(*bound[0]).value_or(255) : 255;
  const Value end = bound[2].value_or(Value::Str("...", Origin::kTemplate));
  const int64_t leeway = bound[3] && !bound[3]->IsNone() ? AsIndex(*bound[3]).value_or(5) : 5;
  if (!end.IsString()) RaiseRuntime("truncate's end must be a string");
  const int64_t end_length = *Length(end);
  if (length < end_length)
    RaiseRuntime(fmt::format("expected length >= {}, got {}", end_length, length));
  if (leeway < 0) RaiseRuntime(fmt::format("expected leeway >= 0, got {}", leeway));
  if (*Length(input) <= length + leeway) return input;
  Value head = Slice(input, Value(), Value::Int(length - end_length), Value());
  if (!bound[1] || !Truth(*bound[1])) {
    Arguments split;
    split.positional = {Value::Str(" ", Origin::kTemplate), Value::Int(1)};
    head = CallStringMethod(interpreter, head, "rsplit", split).items()[0];
  }
  return Binary(BinaryOperator::kAdd, head, end);
}

Value WordCount(Interpreter&, const Value& input, Arguments& arguments) {
  Bind("wordcount", arguments, {});
  const std::string text = Soft(input).text();
  int64_t count = 0;
  bool in_word = false;
  for (size_t i = 0; i < text.size(); i += CodePointBytes(text, i)) {
    const bool word = IsWordCharacter(DecodeAt(text, i));
    if (word && !in_word) ++count;
    in_word = word;
  }
  return Value::Int(count);
}

TracedString QuoteUrl(const Value& value, bool query) {
  const TracedString text = Str(value);
  TracedString out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text.text()[i]);
    const bool safe = (c < 0x80 && std::isalnum(c) != 0) ||
                      std::string_view(query ? "_.-~" : "_.-~/").find(static_cast<char>(c)) !=
                          std::string_view::npos;
    const Origin origin = text.OriginAt(i);
    if (safe) {
      out.Append(std::string(1, static_cast<char>(c)), origin);
    } else if (query && c == ' ') {
      out.Append("+", origin);
    } else {
      out.Append(fmt::format("%{:02X}", c), origin);
    }
  }
  return out;
}

Value UrlEncode(Interpreter&, const Value& input, Arguments& arguments) {
  Bind("urlencode", arguments, {});
  auto source = input.IsString() ? nullptr : TryIterate(input);
  if (!source) return Value::Str(QuoteUrl(input, false));
  if (input.IsDict()) {
    const auto view = std::make_shared<DictView>(input, DictView::What::kItems);
    source = view->Iterate(view);
  }
  TracedString out;
  for (Value pair; source->Next(&pair);) {
    const List parts = ToList(pair);
    if (parts.size() != 2) RaiseRuntime("not enough values to unpack (expected 2)");
    if (!out.empty()) out.Append("&", Origin::kTemplate);
    out.Append(QuoteUrl(parts[0], true));
    out.Append("=", Origin::kTemplate);
    out.Append(QuoteUrl(parts[1], true));
  }
  return Value::Str(std::move(out));
}

Value XmlAttributes(Interpreter&, const Value& input, Arguments& arguments) {
  const auto bound = Bind("xmlattr", arguments, {"autospace"});
  if (!input.IsDict())
    RaiseRuntime(fmt::format("'{}' object has no attribute 'items'", TypeName(input)));
  TracedString out;
  for (const auto& [key, value] : input.dict().entries()) {
    if (value.IsNone() || value.IsUndefined()) continue;
    if (!key.IsString() || key.text().find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      RaiseRuntime(fmt::format("Invalid character in attribute name: {}", Repr(key)));
    }
    if (!out.empty() || !bound[0] || Truth(*bound[0])) out.Append(" ", Origin::kTemplate);
    out.Append(EscapeHtml(key.string().traced));
    out.Append("=\"", Origin::kTemplate);
    out.Append(EscapeHtml(Str(value)));
    out.Append("\"", Origin::kTemplate);
  }
  return Value::Str(std::move(out));
}

Value FileSize(Interpreter&, const Value& input, Arguments& arguments) {
  const auto bound = Bind("filesizeformat", arguments, {"binary"});
  const bool binary = bound[0] && Truth(*bound[0]);
  const auto bytes = AsFloat(input);
  if (!bytes) RaiseRuntime("could not convert value to float");
  const double base = binary ? 1024 : 1000;
  if (*bytes == 1) return Value::Str("1 Byte", Origin::kTemplate);
  if (*bytes < base) {
    return Value::Str(fmt::format("{} Bytes", Str(RoundToInt(*bytes)).text()), Origin::kTemplate);
  }
  constexpr const char* kPrefixes[] = {"k", "M", "G", "T", "P", "E", "Z", "Y"};
  double unit = base;
  const char* prefix = "";
  for (const char* candidate : kPrefixes) {
    unit *= base;
    prefix = candidate;
    if (*bytes < unit) break;
  }
  if (binary && prefix[0] == 'k') prefix = "K";
  return Value::Str(fmt::format("{:.1f} {}{}B", base * *bytes / unit, prefix, binary ? "i" : ""),
                    Origin::kTemplate);
}

Value ToJsonFilter(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto bound =
      Bind("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound[0] && Truth(*bound[0]);
  style.sort_keys = bound[3] && Truth(*bound[3]);
  if (bound[1] && !bound[1]->IsNone()) {
    if (bound[1]->IsString()) {
      style.indent = bound[1]->text();
    } else {
      const auto width = AsIndex(*bound[1]);
      constexpr int64_t kMaxIndent = 100;
      if (!width || *width > kMaxIndent) RaiseRuntime("tojson: indent must be a small integer");
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(0, *width)), ' ');
    }
    style.item_separator = std::string(1, ',');
  }
  if (bound[2] && !bound[2]->IsNone()) {
    const List separators = ToList(*bound[2]);
    if (separators.size() != 2 || !separators[0].IsString() || !separators[1].IsString()) {
      RaiseRuntime("tojson: separators must be two strings");
    }
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  interpreter.Charge(input.weight());
  return Value::Str(ToJson(input, style));
}

Value Attribute(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto bound = Bind("attr", arguments, {"name"}, 1);
  if (!bound[0]->IsString()) RaiseRuntime("attribute name must be string");
  if (input.IsUndefined()) RaiseUndefined(input);
  // Attributes only, never the items of a dictionary.
  if (input.IsDict()) {
    if (auto method = FindMethod(input, bound[0]->text())) return *method;
    return Value::MakeUndefined(fmt::format("'dict object' has no attribute {}", Repr(*bound[0])),
                                bound[0]->text());
  }
  return interpreter.GetAttribute(input, bound[0]->text());
}

// Filters that no chat template needs: known by name, an error when they are run.
Value Unsupported(Interpreter&, const Value&, Arguments&) {
  RaiseRuntime("this filter is not available in chat templates");
}

constexpr auto kFilters = std::to_array<FilterEntry>({
    {"abs", Absolute},
    {"attr", Attribute},
    {"batch", sequence_filters::Batch},
    {"capitalize", ViaMethod<kCapitalizeName>},
    {"center", Center},
    {"count", sequence_filters::LengthOf},
    {"d", Default},
    {"default", Default},
    {"dictsort", sequence_filters::DictSort},
    {"e", Escape},
    {"escape", Escape},
    {"filesizeformat", FileSize},
    {"first", sequence_filters::First},
    {"float", ToFloat},
    {"forceescape", ForceEscape},
    {"format", Format},
    {"groupby", sequence_filters::GroupBy},
    {"indent", Indent},
    {"int", ToInt},
    {"items", sequence_filters::Items},
    {"join", sequence_filters::Join},
    {"last", sequence_filters::Last},
    {"length", sequence_filters::LengthOf},
    {"list", sequence_filters::MakeList},
    {"lower", ViaMethod<kLowerName>},
    {"map", sequence_filters::Map},
    {"max", sequence_filters::Max},
    {"min", sequence_filters::Min},
    {"pprint", Unsupported},
    {"random", Unsupported},
    {"reject", sequence_filters::Reject},
    {"rejectattr", sequence_filters::RejectAttribute},
    {"replace", Replace},
    {"reverse", sequence_filters::Reverse},
    {"round", Round},
    {"safe", MarkSafe},
    {"select", sequence_filters::Select},
    {"selectattr", sequence_filters::SelectAttribute},
    {"slice", sequence_filters::Slices},
    {"sort", sequence_filters::Sort},
    {"string", ToString},
    {"striptags", Unsupported},
    {"sum", sequence_filters::Sum},
    {"title", Title},
    {"tojson", ToJsonFilter},
    {"trim", ViaMethod<kStripName>},
    {"truncate", Truncate},
    {"unique", sequence_filters::Unique},
    {"upper", ViaMethod<kUpperName>},
    {"urlencode", UrlEncode},
    {"urlize", Unsupported},
    {"wordcount", WordCount},
    {"wordwrap", Unsupported},
    {"xmlattr", XmlAttributes},
});

}  // namespace

const FilterEntry* FindFilter(std::string_view name) {
  const auto* filter = std::find_if(kFilters.begin(), kFilters.end(),
                                    [&](const FilterEntry& entry) { return name == entry.name; });
  return filter != kFilters.end() ? &*filter : nullptr;
}

}  // namespace mference::jinja
