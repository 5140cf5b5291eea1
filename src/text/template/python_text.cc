#include "text/template/python_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/template/operators.h"
#include "text/template/template.h"
#include "text/template/unicode.h"

namespace mference::jinja {
namespace {

// Shared parts of a value are written every time they are reached, so the size is bounded here.
constexpr size_t kMaxTextBytes = 64ULL << 20;

// Writes values as Python or JSON text and notes whether any of it came from the conversation.
class Writer {
 public:
  std::string& out() { return out_; }
  bool data() const { return data_; }

  void Text(std::string_view text) {
    if (out_.size() + text.size() > kMaxTextBytes) {
      throw TemplateError(TemplateErrorKind::kLimit, "the text of a value is too long");
    }
    out_.append(text);
  }

  void Repr(const Value& value) {
    data_ = data_ || value.from_data();
    switch (value.kind()) {
      case Value::Kind::kUndefined:
        Text("Undefined");
        break;
      case Value::Kind::kNone:
        Text("None");
        break;
      case Value::Kind::kBool:
        Text(value.boolean() ? "True" : "False");
        break;
      case Value::Kind::kInt:
        Text(IntegerText(value));
        break;
      case Value::Kind::kFloat:
        Text(FloatText(value));
        break;
      case Value::Kind::kString:
        data_ = data_ || value.string().traced.HasData();
        if (value.string().markup) Text("Markup(");
        Text(StringRepr(value.text()));
        if (value.string().markup) Text(")");
        break;
      case Value::Kind::kList:
        ReprItems("[", value.items(), "]");
        break;
      case Value::Kind::kTuple:
        ReprItems("(", value.items(), value.items().size() == 1 ? ",)" : ")");
        break;
      case Value::Kind::kDict: {
        Text("{");
        const char* separator = "";
        for (const Dict::Entry& entry : value.dict().entries()) {
          Text(separator);
          Repr(entry.key);
          Text(": ");
          Repr(entry.value);
          separator = ", ";
        }
        Text("}");
        break;
      }
      case Value::Kind::kObject:
        data_ = true;  // what it refers to is not known here
        Text(value.object().Repr());
        break;
    }
  }

  static std::string IntegerText(const Value& value) {
    return value.IsSmallInt() ? std::to_string(value.small_int()) : value.big_int().ToString();
  }

  static std::string FloatText(const Value& value) {
    const Float& number = value.number();
    return number.literal ? *number.literal : FloatRepr(number.number);
  }

  void Json(const Value& value, const JsonStyle& style, int level) {
    data_ = data_ || value.from_data();
    switch (value.kind()) {
      case Value::Kind::kNone:
        Text("null");
        return;
      case Value::Kind::kBool:
        Text(value.boolean() ? "true" : "false");
        return;
      case Value::Kind::kInt:
        Text(IntegerText(value));
        return;
      case Value::Kind::kFloat:
        Text(JsonFloat(value));
        return;
      case Value::Kind::kString:
        data_ = data_ || value.string().traced.HasData();
        JsonString(value.text(), style.ensure_ascii);
        return;
      case Value::Kind::kList:
      case Value::Kind::kTuple:
        JsonArray(value.items(), style, level);
        return;
      case Value::Kind::kDict:
        JsonObject(value.dict(), style, level);
        return;
      default:
        RaiseRuntime(fmt::format("Object of type {} is not JSON serializable", TypeName(value)));
    }
  }

 private:
  void ReprItems(const char* open, const List& items, const char* close) {
    Text(open);
    const char* separator = "";
    for (const Value& item : items) {
      Text(separator);
      Repr(item);
      separator = ", ";
    }
    Text(close);
  }

  static std::string JsonFloat(const Value& value) {
    const double number = value.number().number;
    if (std::isfinite(number) || value.number().literal) return FloatText(value);
    return std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
  }

  void JsonString(std::string_view text, bool ensure_ascii) {
    std::string quoted = "\"";
    for (size_t i = 0; i < text.size();) {
      const size_t length = CodePointBytes(text, i);
      const char32_t c = DecodeAt(text, i);
      constexpr std::string_view kNamed = "\"\\\n\r\t\f\b";
      constexpr std::string_view kNames = "\"\\nrtfb";
      const size_t named = c < 0x80 ? kNamed.find(static_cast<char>(c)) : std::string_view::npos;
      if (named != std::string_view::npos) {
        quoted += {'\\', kNames[named]};
      } else if (c < 0x20 || (ensure_ascii && c >= 0x7F && c < 0x10000)) {
        quoted += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
      } else if (ensure_ascii && c >= 0x10000) {
        const uint32_t offset = static_cast<uint32_t>(c) - 0x10000;
        quoted +=
            fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (offset >> 10), 0xDC00 + (offset & 0x3FF));
      } else {
        quoted.append(text.substr(i, length));
      }
      i += length;
    }
    Text(quoted);
    Text("\"");
  }

  void NewLine(const JsonStyle& style, int level) {
    if (!style.indent) return;
    Text("\n");
    for (int i = 0; i < level; ++i) Text(*style.indent);
  }

  void JsonArray(const List& items, const JsonStyle& style, int level) {
    Text("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) Text(style.item_separator);
      NewLine(style, level + 1);
      Json(items[i], style, level + 1);
    }
    if (!items.empty()) NewLine(style, level);
    Text("]");
  }

  void JsonObject(const Dict& dict, const JsonStyle& style, int level) {
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (style.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const Dict::Entry* a, const Dict::Entry* b) {
                         return Compare(a->key, b->key, Order::kLess);
                       });
    }
    Text("{");
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) Text(style.item_separator);
      NewLine(style, level + 1);
      JsonKey(entries[i]->key, style);
      Text(style.key_separator);
      Json(entries[i]->value, style, level + 1);
    }
    if (!entries.empty()) NewLine(style, level);
    Text("}");
  }

  void JsonKey(const Value& key, const JsonStyle& style) {
    if (key.IsString()) {
      Json(key, style, 0);
    } else if (key.IsNone() || key.IsBool() || key.IsInt() || key.IsFloat()) {
      Text("\"");
      Json(key, style, 0);
      Text("\"");
    } else {
      RaiseRuntime(
          fmt::format("keys must be str, int, float, bool or None, not {}", TypeName(key)));
    }
  }

  std::string out_;
  bool data_ = false;
};

}  // namespace

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // Shortest digits as d.ddde[+-]xx; Python writes them plainly for exponents in [-4, 16).
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view scientific(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t mark = scientific.find('e');
  int exponent = 0;
  // from_chars takes no plus sign.
  const char* exponent_begin = scientific.data() + mark + (scientific[mark + 1] == '+' ? 2 : 1);
  std::from_chars(exponent_begin, end.ptr, exponent);
  const bool negative = scientific[0] == '-';
  std::string digits;
  for (const char c : scientific.substr(0, mark)) {
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  std::string text = negative ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    text += digits.substr(0, 1);
    if (digits.size() > 1) text += "." + digits.substr(1);
    return text + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return text + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  text += digits.substr(0, whole) + ".";
  return text + (digits.size() > whole ? digits.substr(whole) : "0");
}

std::string StringRepr(std::string_view text) {
  const bool double_quotes =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (size_t i = 0; i < text.size();) {
    const size_t length = CodePointBytes(text, i);
    const char32_t c = DecodeAt(text, i);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += {'\\', static_cast<char>(c)};
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += {'\\', c == '\n' ? 'n' : c == '\r' ? 'r' : 't'};
    } else if (IsPrintable(c)) {
      out.append(text.substr(i, length));
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
    i += length;
  }
  out.push_back(quote);
  return out;
}

TracedString Str(const Value& value) {
  if (value.IsString()) return value.string().traced;
  if (value.IsUndefined()) return {};
  Writer writer;
  writer.Repr(value);
  return {std::move(writer.out()), writer.data() ? Origin::kData : Origin::kTemplate};
}

std::string Repr(const Value& value) {
  Writer writer;
  writer.Repr(value);
  return std::move(writer.out());
}

TracedString ToJson(const Value& value, const JsonStyle& style) {
  Writer writer;
  writer.Json(value, style, 0);
  return {std::move(writer.out()), writer.data() ? Origin::kData : Origin::kTemplate};
}

TracedString EscapeHtml(const TracedString& text) {
  constexpr std::string_view kSpecial = "&<>'\"";
  constexpr std::string_view kEscapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  TracedString out;
  size_t copied = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t which = kSpecial.find(text.text()[i]);
    if (which == std::string_view::npos) continue;
    out.AppendSlice(text, copied, i);
    out.Append(kEscapes[which], text.OriginAt(i));
    copied = i + 1;
  }
  out.AppendSlice(text, copied, text.size());
  return out;
}

}  // namespace mference::jinja
